/* SPDX-License-Identifier: MIT */
/* The drivers of Python packages: what they cannot do, what their program is told, what it says
 * besides. */
#include "tests/support/unit.h"

#include <jansson.h>
#include <memtally/units.h>
#include <string.h>

#include "drive/profile.h"

static const struct mt_profile_settings settings = {.model_path = "/models/m",
                                                    .prompt_tokens = 8,
                                                    .max_tokens = 100,
                                                    .batch_size = 1,
                                                    .repeats = 3,
                                                    .is_pretended = 1};

static void refused(const struct mt_profile_driver *driver, struct mt_profile_settings asked,
                    const char *option)
{
    struct mt_error error;
    assert_int_equal(driver->check(&asked, &error), MT_EARG);
    assert_non_null(strstr(error.text, option));
}

static void test_what_a_package_cannot_do_is_refused(void **state)
{
    (void)state;
    struct mt_profile_settings asked = settings;
    assert_int_equal(mt_profile_transformers.check(&asked, NULL), 0);
    assert_int_equal(mt_profile_vllm.check(&asked, NULL), 0);
    asked.kv_type = "fp8";
    refused(&mt_profile_transformers, asked, "--kv-type");
    assert_int_equal(mt_profile_sglang.check(&asked, NULL), 0);
    asked.kv_type = "q8_0";
    refused(&mt_profile_vllm, asked, "--kv-type");
    asked = settings;
    asked.context_tokens = 512;
    refused(&mt_profile_transformers, asked, "--context");
    asked = settings;
    asked.device_map = "auto";
    refused(&mt_profile_vllm, asked, "--device-map");
    asked.tensor_parallel = 2;
    refused(&mt_profile_transformers, asked, "--tensor-parallel");
}

static void test_llama_cpp_takes_no_settings_of_packages(void **state)
{
    (void)state;
    struct mt_profile_settings asked = settings;
    refused(&mt_profile_llama_server, asked, "--on");
    asked.is_pretended = 0;
    assert_int_equal(mt_profile_llama_server.check(&asked, NULL), 0);
    asked.dtype = "bf16";
    refused(&mt_profile_llama_bench, asked, "--dtype");
    refused(&mt_profile_node_llama_cpp, asked, "--dtype");
}

static void test_the_command_passes_the_settings_as_json(void **state)
{
    (void)state;
    const struct mt_profile_engine engine = {
        .driver = &mt_profile_vllm, .program = "/venv/bin/python", .script = "/s/profile_vllm.py"};
    struct mt_profile_settings asked = settings;
    struct mt_profile_job job = {.settings = &asked, .engine = &engine};
    struct mt_profile_command command = {0};
    asked.tensor_parallel = 2;
    assert_int_equal(mt_profile_vllm.command(&job, &command, NULL), 0);
    assert_int_equal(command.n_words, 3);
    assert_string_equal(command.words[0], "/venv/bin/python");
    json_t *json = json_loads(command.words[2], 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json, "tensor_parallel")), 2);
    assert_int_equal(json_integer_value(json_object_get(json, "max_tokens")), 100);
    assert_true(json_is_true(json_object_get(json, "pretended")));
    assert_true(json_is_null(json_object_get(json, "dtype")));
    json_decref(json);
    mt_profile_command_finish(&command);
    asked.dtype = "\xff";
    assert_int_equal(mt_profile_vllm.command(&job, &command, NULL), MT_EARG);
    mt_profile_command_finish(&command);
}

static int take(struct mt_profile_job *job, const char *line)
{
    return mt_profile_transformers.take_line(job, MT_PROFILE_STDOUT, line, strlen(line), 1);
}

static void test_the_map_of_modules_and_peaks_of_devices_are_kept(void **state)
{
    (void)state;
    const struct mt_profile_engine engine = {.driver = &mt_profile_transformers};
    struct mt_profile_job job = {.settings = &settings, .engine = &engine};
    mt_profile_journal_init(&job.journal);
    assert_true(take(&job, "{\"event\":\"model\",\"device_map\":7}"));
    assert_null(job.journal.facts.device_map);
    assert_true(take(&job, "{\"event\":\"model\",\"device_map\":{\"lm_head\":\"cuda:1\"}}"));
    assert_true(take(&job, "{\"event\":\"model\",\"device_map\":{\"lm_head\":\"cuda:0\"}}"));
    assert_string_equal(json_string_value(json_object_get(job.journal.facts.device_map, "lm_head")),
                        "cuda:1");
    assert_true(take(&job, "{\"event\":\"run\",\"run\":1,\"latency_ms\":3.5,\"steps\":8,"
                           "\"peak_device_bytes\":4096}"));
    assert_true(take(&job, "{\"event\":\"run\",\"run\":2,\"latency_ms\":3.5,\"steps\":8}"));
    assert_int_equal(job.journal.runs[0].peak_device_bytes, 4096);
    assert_true(job.journal.runs[1].peak_device_bytes == MT_UNKNOWN);
    assert_true(take(&job, "{\"event\":\"error\",\"message\":\"no\"}"));
    assert_string_equal(job.journal.error.text, "transformers: no");
    assert_int_equal(job.journal.error.code, MT_ECHILD);
    job.journal.error.code = 0;
    assert_true(take(&job, "{\"event\":\"error\",\"message\":\"no\",\"usage\":true}"));
    assert_int_equal(job.journal.error.code, MT_EARG);
    mt_profile_journal_finish(&job.journal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_package_cannot_do_is_refused),
        cmocka_unit_test(test_llama_cpp_takes_no_settings_of_packages),
        cmocka_unit_test(test_the_command_passes_the_settings_as_json),
        cmocka_unit_test(test_the_map_of_modules_and_peaks_of_devices_are_kept),
    };
    return RUN_TESTS(tests);
}
