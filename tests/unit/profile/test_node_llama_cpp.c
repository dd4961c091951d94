/* SPDX-License-Identifier: MIT */
/* The events of engines/node-llama-cpp.mjs, and everything else that may come in their place. */
#include "tests/support/unit.h"

#include <jansson.h>
#include <memtally/units.h>
#include <stdlib.h>
#include <string.h>

#include "drive/profile.h"

static const struct mt_profile_settings settings = {.model_path = "/models/m.gguf",
                                                    .prompt_tokens = 16,
                                                    .max_tokens = 8,
                                                    .batch_size = 2,
                                                    .repeats = 2};
static const struct mt_profile_engine engine = {.driver = &mt_profile_node_llama_cpp,
                                                .program = "/bin/node",
                                                .script = "/share/engine.mjs",
                                                .modules = "/modules"};

static int begin(void **state)
{
    struct mt_profile_job *job = calloc(1, sizeof *job);
    job->settings = &settings;
    job->engine = &engine;
    mt_profile_journal_init(&job->journal);
    *state = job;
    return 0;
}

static int end(void **state)
{
    struct mt_profile_job *job = *state;
    mt_profile_journal_finish(&job->journal);
    free(job);
    return 0;
}

static int take(struct mt_profile_job *job, const char *line)
{
    return mt_profile_node_llama_cpp.take_line(job, MT_PROFILE_STDOUT, line, strlen(line), 1);
}

static void test_events_of_a_whole_profile(void **state)
{
    struct mt_profile_job *job = *state;
    const struct mt_profile_facts *facts = &job->journal.facts;
    assert_true(take(job, "{\"event\":\"engine\",\"name\":\"llama.cpp\",\"version\":\"v0.5.0\","
                          "\"binding\":\"node-llama-cpp 3.22.1\"}"));
    assert_true(take(job, "{\"event\":\"model\",\"name\":\"Tiny\",\"architecture\":\"llama\","
                          "\"dtype\":\"F16\",\"parameters\":3528960,\"size_bytes\":7062528,"
                          "\"layers\":4,\"trained_context_tokens\":null}"));
    assert_true(take(job, "{\"event\":\"settings\",\"context_tokens\":2048,\"batch\":512,"
                          "\"threads\":2,\"prompt_tokens\":16}"));
    assert_true(take(job, "{\"event\":\"phase\",\"name\":\"decode\",\"run\":1,\"time_ns\":70}"));
    assert_true(take(job, "{\"event\":\"run\",\"run\":1,\"latency_ms\":3.5,\"prefill_ms\":1,"
                          "\"decode_ms\":2.5,\"steps\":8}"));
    assert_true(take(job, "{\"event\":\"done\",\"time_ns\":90}"));
    assert_string_equal(facts->engine_name, "llama.cpp");
    assert_string_equal(facts->engine_version, "v0.5.0 (node-llama-cpp 3.22.1)");
    assert_string_equal(facts->model_name, "Tiny");
    assert_int_equal(facts->parameters, 3528960);
    assert_true(facts->trained_context_tokens == MT_UNKNOWN);
    assert_int_equal(facts->context_tokens, 2048);
    assert_int_equal(job->journal.n_phases, 1);
    assert_int_equal(job->journal.phases[0].start_ns, 70);
    assert_int_equal(job->journal.phases[0].end_ns, 90);
    assert_int_equal(job->journal.n_runs, 1);
    assert_true(job->journal.runs[0].latency_ms == 3.5);
    assert_true(job->journal.runs[0].prefill_ms == 1);
    assert_int_equal(job->journal.runs[0].steps, 8);
    assert_true(job->journal.done);
    assert_int_equal(job->journal.error.code, 0);
}

static void test_lines_that_are_no_events_belong_in_the_log(void **state)
{
    struct mt_profile_job *job = *state;
    static const char *const strays[] = {
        "",
        "hello",
        "{",
        "{}",
        "{\"event\":",
        "{\"event\":7}",
        "{\"event\":\"dance\"}",
        "[{\"event\":\"done\"}]",
        "{\"event\":\"done\"",
        "{\"event\":\"done\"}}",
        "{\"event\":\"\xff\"}",
        "{\"event\":{\"event\":{\"event\":",
    };
    for (size_t i = 0; i < sizeof strays / sizeof *strays; i++)
        assert_false(take(job, strays[i]));
    assert_false(job->journal.done);
    assert_int_equal(job->journal.error.code, 0);
}

static void test_standard_error_is_the_log(void **state)
{
    struct mt_profile_job *job = *state;
    const char line[] = "{\"event\":\"done\",\"time_ns\":1}";
    assert_false(
        mt_profile_node_llama_cpp.take_line(job, MT_PROFILE_STDERR, line, sizeof line - 1, 1));
    assert_false(job->journal.done);
}

static void expect_failure(struct mt_profile_job *job, const char *line)
{
    assert_true(take(job, line));
    assert_int_equal(job->journal.error.code, MT_EFORMAT);
    assert_int_equal(job->journal.n_runs, 0);
    assert_int_equal(job->journal.n_phases, 0);
    job->journal.error.code = 0;
}

static void test_events_that_make_no_sense_are_failures(void **state)
{
    struct mt_profile_job *job = *state;
    expect_failure(job, "{\"event\":\"phase\",\"name\":\"lunch\",\"run\":1,\"time_ns\":1}");
    expect_failure(job, "{\"event\":\"phase\",\"name\":\"load\",\"run\":3,\"time_ns\":1}");
    expect_failure(job, "{\"event\":\"phase\",\"name\":\"load\",\"run\":-1,\"time_ns\":1}");
    expect_failure(job, "{\"event\":\"phase\",\"name\":\"load\",\"run\":1}");
    expect_failure(job, "{\"event\":\"phase\",\"run\":1,\"time_ns\":1}");
    expect_failure(job, "{\"event\":\"run\"}");
    expect_failure(job, "{\"event\":\"run\",\"run\":1,\"latency_ms\":-4,\"steps\":8}");
    expect_failure(job, "{\"event\":\"run\",\"run\":1,\"latency_ms\":\"4\",\"steps\":8}");
    expect_failure(job, "{\"event\":\"run\",\"run\":9,\"latency_ms\":4,\"steps\":8}");
}

static void test_error_of_the_engine_is_passed_on(void **state)
{
    struct mt_profile_job *job = *state;
    assert_true(take(job, "{\"event\":\"error\",\"message\":\"Failed to load model\"}"));
    assert_int_equal(job->journal.error.code, MT_ECHILD);
    assert_string_equal(job->journal.error.text, "node-llama-cpp: Failed to load model");
}

static void test_command_passes_the_settings_as_json(void **state)
{
    struct mt_profile_job *job = *state;
    struct mt_profile_command command = {0};
    assert_int_equal(mt_profile_node_llama_cpp.command(job, &command, NULL), 0);
    assert_int_equal(command.n_words, 3);
    assert_string_equal(command.words[0], "/bin/node");
    assert_string_equal(command.words[1], "/share/engine.mjs");
    json_t *json = json_loads(command.words[2], 0, NULL);
    assert_string_equal(json_string_value(json_object_get(json, "modules")), "/modules");
    assert_int_equal(json_integer_value(json_object_get(json, "batch_size")), 2);
    assert_true(json_is_null(json_object_get(json, "prompt")));
    assert_true(json_is_null(json_object_get(json, "threads")));
    json_decref(json);
    mt_profile_command_finish(&command);
}

static void test_prompt_that_is_not_utf8_is_an_error(void **state)
{
    struct mt_profile_job *job = *state;
    struct mt_profile_settings broken = settings;
    struct mt_profile_command command = {0};
    broken.prompt = "\xff\xfe";
    job->settings = &broken;
    assert_int_equal(mt_profile_node_llama_cpp.command(job, &command, NULL), MT_EARG);
    mt_profile_command_finish(&command);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_events_of_a_whole_profile),
        TEST(test_lines_that_are_no_events_belong_in_the_log),
        TEST(test_standard_error_is_the_log),
        TEST(test_events_that_make_no_sense_are_failures),
        TEST(test_error_of_the_engine_is_passed_on),
        TEST(test_command_passes_the_settings_as_json),
        TEST(test_prompt_that_is_not_utf8_is_an_error),
    };
    return RUN_TESTS(tests);
}
