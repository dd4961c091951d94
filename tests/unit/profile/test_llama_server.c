/* SPDX-License-Identifier: MIT */
/* llama-server's answers, as build 11434 gives them, and others. */
#include "tests/support/unit.h"

#include <memtally/units.h>
#include <string.h>

#include "drive/llama_server.h"

static int read_completion(const char *text, struct mt_profile_completion *completion)
{
    json_t *answer = json_loads(text, 0, NULL);
    int code = mt_profile_llama_server_completion(answer, 5, completion, NULL);
    json_decref(answer);
    return code;
}

static void test_completion_states_its_times(void **state)
{
    (void)state;
    struct mt_profile_completion completion;
    assert_int_equal(
        read_completion("{\"content\":\"##\",\"timings\":{\"cache_n\":0,\"prompt_n\":4,"
                        "\"prompt_ms\":1.5,\"predicted_n\":5,\"predicted_ms\":2}}",
                        &completion),
        0);
    assert_true(completion.prefill_ms == 1.5);
    assert_true(completion.decode_ms == 2);
    assert_int_equal(completion.prompt_tokens, 4);
    assert_int_equal(completion.generated_tokens, 5);
}

static void test_completions_that_say_less_are_refused(void **state)
{
    (void)state;
    struct mt_profile_completion completion = {.prompt_tokens = 77};
    static const char *const answers[] = {
        "{}",
        "[]",
        "{\"timings\":[]}",
        "{\"timings\":{\"prompt_n\":4,\"prompt_ms\":1.5,\"predicted_n\":5}}",
        "{\"timings\":{\"prompt_n\":4,\"prompt_ms\":-1,\"predicted_n\":5,\"predicted_ms\":2}}",
        "{\"timings\":{\"prompt_n\":4,\"prompt_ms\":1,\"predicted_n\":4,\"predicted_ms\":2}}",
        "{\"timings\":{\"prompt_n\":\"4\",\"prompt_ms\":1,\"predicted_n\":5,\"predicted_ms\":2}}",
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        assert_int_equal(read_completion(answers[i], &completion), MT_EFORMAT);
    assert_int_equal(mt_profile_llama_server_completion(NULL, 5, &completion, NULL), MT_EFORMAT);
    assert_int_equal(completion.prompt_tokens, 77);
}

static void test_models_and_props_become_facts(void **state)
{
    (void)state;
    struct mt_profile_journal journal;
    mt_profile_journal_init(&journal);
    json_t *models = json_loads("{\"data\":[{\"meta\":{\"n_params\":3528960,\"size\":7062528,"
                                "\"n_ctx_train\":131072,\"ftype\":\"F16\"}}]}",
                                0, NULL);
    json_t *props = json_loads("{\"default_generation_settings\":{\"n_ctx\":256},"
                               "\"build_info\":\"b11434-1a2b3c4\"}",
                               0, NULL);
    mt_profile_llama_server_models(&journal.facts, models);
    mt_profile_llama_server_props(&journal.facts, props);
    assert_int_equal(journal.facts.parameters, 3528960);
    assert_int_equal(journal.facts.trained_context_tokens, 131072);
    assert_string_equal(journal.facts.dtype, "F16");
    assert_int_equal(journal.facts.context_tokens, 256);
    assert_string_equal(journal.facts.engine_version, "b11434-1a2b3c4");
    json_decref(models);
    json_decref(props);
    mt_profile_journal_finish(&journal);
}

static void test_answers_that_say_nothing_leave_facts_unknown(void **state)
{
    (void)state;
    struct mt_profile_journal journal;
    mt_profile_journal_init(&journal);
    json_t *nonsense = json_loads("{\"data\":7,\"build_info\":\"b0-unknown\"}", 0, NULL);
    mt_profile_llama_server_models(&journal.facts, nonsense);
    mt_profile_llama_server_props(&journal.facts, nonsense);
    mt_profile_llama_server_models(&journal.facts, NULL);
    mt_profile_llama_server_props(&journal.facts, NULL);
    assert_true(journal.facts.parameters == MT_UNKNOWN);
    assert_true(journal.facts.context_tokens == MT_UNKNOWN);
    assert_string_equal(journal.facts.engine_version, "");
    json_decref(nonsense);
    mt_profile_journal_finish(&journal);
}

static void expect_prompt(const char *tokens, uint64_t count, const char *expected)
{
    json_t *given = json_loads(tokens, 0, NULL);
    json_t *wanted = json_loads(expected, 0, NULL);
    json_t *prompt = mt_profile_llama_server_prompt(given, count);
    assert_true(json_equal(prompt, wanted));
    json_decref(prompt);
    json_decref(wanted);
    json_decref(given);
}

static void test_prompt_is_repeated_or_cut_to_its_number_of_tokens(void **state)
{
    (void)state;
    expect_prompt("[1, 2, 3]", 0, "[1, 2, 3]");
    expect_prompt("[1, 2, 3]", 2, "[1, 2]");
    expect_prompt("[1, 2, 3]", 7, "[1, 2, 3, 1, 2, 3, 1]");
    json_t *none = json_array();
    assert_null(mt_profile_llama_server_prompt(none, 5));
    assert_null(mt_profile_llama_server_prompt(NULL, 5));
    json_decref(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completion_states_its_times),
        cmocka_unit_test(test_completions_that_say_less_are_refused),
        cmocka_unit_test(test_models_and_props_become_facts),
        cmocka_unit_test(test_answers_that_say_nothing_leave_facts_unknown),
        cmocka_unit_test(test_prompt_is_repeated_or_cut_to_its_number_of_tokens),
    };
    return RUN_TESTS(tests);
}
