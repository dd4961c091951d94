/* SPDX-License-Identifier: MIT */
/* Questions for a server and what its answers say. */
#include "tests/support/unit.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drive/ports.h"
#include "drive/requests.h"
#include "drive/serve_internal.h"

static json_t *parsed(char *body)
{
    assert_non_null(body);
    json_t *json = json_loads(body, 0, NULL);
    free(body);
    assert_non_null(json);
    return json;
}

static json_t *asked(const char *engine, const char *name, struct mt_drive_question question)
{
    return parsed(mt_drive_body(engine, name, &question));
}

static void test_a_prompt_is_of_as_many_ids_as_asked_within_the_vocabulary(void **state)
{
    json_t *json = asked(
        NULL, "complete",
        (struct mt_drive_question){.seed = 1, .n_tokens = 1000, .n_ids = 32, .n_generated = 2});
    json_t *prompt = json_object_get(json, "prompt");
    (void)state;
    assert_int_equal(json_array_size(prompt), 1000);
    for (size_t i = 0; i < 1000; i++) {
        assert_true(json_is_integer(json_array_get(prompt, i)));
        assert_in_range(json_integer_value(json_array_get(prompt, i)), 0, 31);
    }
    assert_int_equal(json_integer_value(json_object_get(json, "n_predict")), 2);
    json_decref(json);
}

static void test_prompts_of_two_seeds_differ(void **state)
{
    json_t *one = asked(NULL, "complete",
                        (struct mt_drive_question){.seed = 1, .n_tokens = 64, .n_ids = 16000});
    json_t *two = asked(NULL, "complete",
                        (struct mt_drive_question){.seed = 2, .n_tokens = 64, .n_ids = 16000});
    (void)state;
    assert_false(json_equal(one, two));
    json_decref(one);
    json_decref(two);
}

static void test_an_image_is_a_png_in_the_message(void **state)
{
    json_t *json = asked(NULL, "chat", (struct mt_drive_question){.n_ids = 1});
    json_t *message = json_array_get(json_object_get(json, "messages"), 0);
    json_t *part = json_array_get(json_object_get(message, "content"), 1);
    const char *url = json_string_value(json_object_get(json_object_get(part, "image_url"), "url"));
    (void)state;
    assert_non_null(url);
    assert_int_equal(strncmp(url, "data:image/png;base64,iVBORw0KGgo", 33), 0);
    json_decref(json);
}

static void test_facts_of_a_server(void **state)
{
    struct mt_drive_server_facts facts = {0};
    json_t *props = json_loads("{\"total_slots\":4,\"modalities\":{\"vision\":true},"
                               "\"default_generation_settings\":{\"n_ctx\":2048}}",
                               0, NULL);
    json_t *models = json_loads("{\"data\":[{\"meta\":{\"n_vocab\":32000}}]}", 0, NULL);
    json_t *adapters = json_loads("[{\"id\":0,\"scale\":0},{\"id\":1,\"scale\":0}]", 0, NULL);
    (void)state;
    mt_drive_facts_take(&facts, props, models, adapters);
    assert_int_equal(facts.n_slots, 4);
    assert_int_equal(facts.slot_tokens, 2048);
    assert_int_equal(facts.vocabulary, 32000);
    assert_true(facts.sees_images);
    assert_int_equal(facts.n_adapters, 2);
    json_decref(props);
    json_decref(models);
    json_decref(adapters);
    mt_drive_facts_take(&facts, NULL, NULL, NULL);
    assert_int_equal(facts.n_slots, 0);
    assert_int_equal(facts.n_adapters, 0);
}

static void test_a_prompt_asks_for_all_adapters(void **state)
{
    json_t *json = asked(
        NULL, "adapters",
        (struct mt_drive_question){.seed = 1, .n_tokens = 16, .n_ids = 1000, .n_adapters = 2});
    const json_t *adapters = json_object_get(json, "lora");
    (void)state;
    assert_int_equal(json_array_size(json_object_get(json, "prompt")), 16);
    assert_int_equal(json_array_size(adapters), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(adapters, 1), "id")), 1);
    json_decref(json);
}

/* A model's name may need quotes of its own. */
static void test_engines_of_openais_interface_are_asked_by_the_models_name(void **state)
{
    static const char *const engines[] = {"vllm", "sglang", "trt-llm", "tgi", "llama.cpp"};
    const struct mt_drive_question question = {.seed = 1,
                                               .n_tokens = 100,
                                               .first_id = 10,
                                               .n_ids = 500,
                                               .n_generated = 4,
                                               .model = "a \"model\""};
    (void)state;
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        json_t *json = asked(engines[i], "openai", question);
        json_t *prompt = json_object_get(json, "prompt");
        assert_string_equal(json_string_value(json_object_get(json, "model")), question.model);
        assert_int_equal(json_integer_value(json_object_get(json, "max_tokens")), 4);
        assert_int_equal(json_array_size(prompt), 100);
        for (size_t k = 0; k < 100; k++)
            assert_in_range(json_integer_value(json_array_get(prompt, k)), 10, 509);
        json_decref(json);
    }
}

static void test_every_body_is_json(void **state)
{
    static const char *const names[] = {"complete", "adapters", "embed", "rank",
                                        "save",     "chat",     "openai"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *json = asked(NULL, names[i], (struct mt_drive_question){.n_tokens = 3, .n_ids = 9});
        assert_true(json_object_size(json) > 0);
        json_decref(json);
    }
}

static void test_a_complaint_in_either_form(void **state)
{
    json_t *object = json_loads("{\"error\":{\"message\":\"no room\"}}", 0, NULL);
    json_t *text = json_loads("{\"error\":\"no room\"}", 0, NULL);
    (void)state;
    assert_string_equal(mt_drive_complaint(object), "no room");
    assert_string_equal(mt_drive_complaint(text), "no room");
    assert_null(mt_drive_complaint(NULL));
    json_decref(object);
    json_decref(text);
}

static void test_a_rehearsed_server_listens_on_this_machine_alone(void **state)
{
    const char *const argv[] = {"llama-server", "-m",   "x",         "--host", "0.0.0.0",
                                "--port",       "8080", "--api-key", "secret", "--slot-save-path",
                                "/srv/slots",   NULL};
    static const char *const expected[] = {"llama-server", "-m",     "x", "--host",
                                           "127.0.0.1",    "--port", "0", "--slot-save-path",
                                           "/tmp/here"};
    char **words = mt_drive_argv((char *const *)argv, "/tmp/here");
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_string_equal(words[i], expected[i]);
    assert_null(words[sizeof expected / sizeof *expected]);
    mt_drive_argv_free(words);
}

static void test_a_python_server_listens_on_this_machine_alone(void **state)
{
    static const char *const commands[][12] = {
        {"/venv/bin/vllm", "serve", "x", "--host", "0.0.0.0", "--port=8000", "--api-key", "secret"},
        {"python3", "-m", "vllm.entrypoints.openai.api_server", "--ssl-keyfile", "key"},
        {"python3", "-m", "sglang.launch_server", "--model-path", "x"}};
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char **words = mt_drive_argv((char *const *)commands[i], "/tmp/here");
        int is_local = 0;
        long port = 0;
        for (char **at = words; *at; at++) {
            is_local |= !strcmp(*at, "--host") && at[1] && !strcmp(at[1], "127.0.0.1");
            if (!strncmp(*at, "--port", 6))
                port = strtol((*at)[6] ? *at + 7 : at[1], NULL, 10);
            assert_string_not_equal(*at, "secret");
            assert_string_not_equal(*at, "--ssl-keyfile");
        }
        assert_true(is_local);
        assert_in_range(port, 1024, 65535);
        assert_int_not_equal(port, 8000);
        mt_drive_argv_free(words);
    }
}

static void test_a_free_port_can_be_listened_on(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)state;
    address.sin_port = htons((uint16_t)mt_drive_free_port("/proc"));
    assert_int_not_equal(address.sin_port, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
}

/* Where it takes a minute to start, some hundred questions in place of three thousand. */
static void test_a_server_that_takes_long_to_start_is_asked_less_often(void **state)
{
    const uint64_t ms = 1000 * 1000;
    int n = 0;
    (void)state;
    assert_int_equal(mt_drive_ask_pause_ns(320 * ms), 10 * ms);
    assert_int_equal(mt_drive_ask_pause_ns(600 * 1000 * ms), 500 * ms);
    for (uint64_t at = 0; at < 60 * 1000 * ms; at += 20 * ms + mt_drive_ask_pause_ns(at))
        n++;
    assert_in_range(n, 100, 300);
}

static void test_other_programs_keep_their_words(void **state)
{
    const char *const argv[] = {"my-server", "--host", "0.0.0.0", "--port", "8080", NULL};
    char **words = mt_drive_argv((char *const *)argv, "/tmp/here");
    (void)state;
    for (size_t i = 0; argv[i]; i++)
        assert_string_equal(words[i], argv[i]);
    mt_drive_argv_free(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prompt_is_of_as_many_ids_as_asked_within_the_vocabulary),
        cmocka_unit_test(test_prompts_of_two_seeds_differ),
        cmocka_unit_test(test_an_image_is_a_png_in_the_message),
        cmocka_unit_test(test_facts_of_a_server),
        cmocka_unit_test(test_a_prompt_asks_for_all_adapters),
        cmocka_unit_test(test_engines_of_openais_interface_are_asked_by_the_models_name),
        cmocka_unit_test(test_every_body_is_json),
        cmocka_unit_test(test_a_complaint_in_either_form),
        cmocka_unit_test(test_a_rehearsed_server_listens_on_this_machine_alone),
        cmocka_unit_test(test_a_python_server_listens_on_this_machine_alone),
        cmocka_unit_test(test_a_free_port_can_be_listened_on),
        cmocka_unit_test(test_a_server_that_takes_long_to_start_is_asked_less_often),
        cmocka_unit_test(test_other_programs_keep_their_words),
    };
    return RUN_TESTS(tests);
}
