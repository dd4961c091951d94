/* SPDX-License-Identifier: MIT */
/* llama-bench's document and progress lines, as build 11434 prints them, and in pieces. */
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drive/llama_bench.h"

#define FACTS                                                                                      \
    "\"build_commit\": \"1a2b3c4\", \"build_number\": 11434, \"model_type\": \"llama 1B Q4_K - "   \
    "Medium\", \"model_size\": 7062528, \"model_n_params\": 3528960, \"n_batch\": 2048, "          \
    "\"n_ubatch\": 512, \"n_threads\": 2, \"type_k\": \"f16\", \"type_v\": \"q8_0\", "
#define PROMPT     "{" FACTS "\"n_prompt\": 32, \"n_gen\": 0, \"samples_ns\": [ 4000000, 2500000 ]}"
#define GENERATION "{" FACTS "\"n_prompt\": 0, \"n_gen\": 8, \"samples_ns\": [ 1500000, 1000000 ]}"
#define DOCUMENT   "[ " PROMPT ", " GENERATION " ]"

static const struct mt_profile_settings settings = {
    .prompt_tokens = 32, .max_tokens = 8, .batch_size = 1, .repeats = 2};
static const struct mt_profile_engine engine = {.driver = &mt_profile_llama_bench};

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
    mt_strbuf_finish(&job->output);
    free(job);
    return 0;
}

static void say(struct mt_profile_job *job, const char *line, uint64_t time_ns)
{
    mt_profile_llama_bench.take_line(job, MT_PROFILE_STDERR, line, strlen(line), time_ns);
}

static void test_document_gives_runs_and_facts(void **state)
{
    struct mt_profile_job *job = *state;
    const struct mt_profile_facts *facts = &job->journal.facts;
    assert_int_equal(mt_profile_llama_bench_take(job, DOCUMENT, sizeof DOCUMENT - 1), 0);
    assert_int_equal(job->journal.n_runs, 2);
    assert_int_equal(job->journal.runs[0].run, 1);
    assert_true(job->journal.runs[0].prefill_ms == 4.0);
    assert_true(job->journal.runs[0].decode_ms == 1.5);
    assert_true(job->journal.runs[0].latency_ms == 5.5);
    assert_true(job->journal.runs[1].latency_ms == 3.5);
    assert_int_equal(job->journal.runs[1].steps, 8);
    assert_string_equal(facts->engine_version, "b11434 (1a2b3c4)");
    assert_string_equal(facts->architecture, "llama");
    assert_string_equal(facts->dtype, "Q4_K - Medium");
    assert_int_equal(facts->parameters, 3528960);
    assert_int_equal(facts->ubatch, 512);
    assert_string_equal(facts->kv_type_v, "q8_0");
}

static void test_build_without_a_number_has_no_version(void **state)
{
    struct mt_profile_job *job = *state;
    char document[] = DOCUMENT;
    for (char *at; (at = strstr(document, "11434"));)
        memcpy(at, "    0", 5);
    assert_int_equal(mt_profile_llama_bench_take(job, document, strlen(document)), 0);
    assert_string_equal(job->journal.facts.engine_version, "");
}

static void test_progress_lines_become_phases(void **state)
{
    struct mt_profile_job *job = *state;
    say(job, "llama-bench: benchmark 1/2: starting", 1000000);
    say(job, "load_tensors:   CPU_Mapped model buffer size =     6.74 MiB", 1500000);
    say(job, "llama-bench: benchmark 1/2: warmup prompt run", 2000000);
    say(job, "llama-bench: benchmark 1/2: prompt run 1/2", 3000000);
    say(job, "llama-bench: benchmark 1/2: prompt run 2/2", 8000000);
    say(job, "llama-bench: benchmark 2/2: starting", 20000000);
    say(job, "llama-bench: benchmark 2/2: warmup generation run", 21000000);
    say(job, "llama-bench: benchmark 2/2: generation run 1/2", 22000000);
    say(job, "llama-bench: benchmark 2/2: generation run 2/2", 24000000);
    assert_int_equal(mt_profile_llama_bench_take(job, DOCUMENT, sizeof DOCUMENT - 1), 0);
    static const struct mt_profile_phase expected[] = {
        {MT_PROFILE_LOAD, 0, 1000000, 2000000},      {MT_PROFILE_PREFILL, 0, 2000000, 3000000},
        {MT_PROFILE_PREFILL, 1, 3000000, 7000000},   {MT_PROFILE_PREFILL, 2, 8000000, 10500000},
        {MT_PROFILE_CONTEXT, 0, 20000000, 21000000}, {MT_PROFILE_DECODE, 0, 21000000, 22000000},
        {MT_PROFILE_DECODE, 1, 22000000, 23500000},  {MT_PROFILE_DECODE, 2, 24000000, 25000000},
    };
    assert_int_equal(job->journal.n_phases, 8);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(job->journal.phases[i].kind, expected[i].kind);
        assert_int_equal(job->journal.phases[i].run, expected[i].run);
        assert_int_equal(job->journal.phases[i].start_ns, expected[i].start_ns);
        assert_int_equal(job->journal.phases[i].end_ns, expected[i].end_ns);
    }
}

static void test_lines_that_look_like_progress_change_nothing(void **state)
{
    struct mt_profile_job *job = *state;
    say(job, "llama-bench: benchmark", 1);
    say(job, "llama-bench: benchmark x/y: starting", 1);
    say(job, "llama-bench: benchmark 1/2: dancing", 1);
    say(job, "", 1);
    assert_int_equal(job->journal.n_phases, 0);
}

static void test_document_that_ends_early_is_refused_at_every_length(void **state)
{
    struct mt_profile_job *job = *state;
    for (size_t length = 0; length < sizeof DOCUMENT - 1; length++) {
        job->journal.error.code = 0;
        assert_int_equal(mt_profile_llama_bench_take(job, DOCUMENT, length), MT_EFORMAT);
        assert_int_equal(job->journal.error.code, MT_EFORMAT);
    }
    assert_int_equal(job->journal.n_runs, 0);
    assert_false(job->journal.done);
}

static void expect_refused(struct mt_profile_job *job, const char *document)
{
    job->journal.error.code = 0;
    assert_int_equal(mt_profile_llama_bench_take(job, document, strlen(document)), MT_EFORMAT);
    assert_int_equal(job->journal.error.code, MT_EFORMAT);
}

static void test_documents_without_the_runs_are_refused(void **state)
{
    struct mt_profile_job *job = *state;
    expect_refused(job, "banana");
    expect_refused(job, "42");
    expect_refused(job, "{}");
    expect_refused(job, "[]");
    expect_refused(job, "[1, \"two\", null]");
    expect_refused(job, "[ " PROMPT " ]");
    expect_refused(job, "[ " GENERATION " ]");
    expect_refused(job, "[" PROMPT ", {\"n_prompt\": 0, \"n_gen\": 8}]");
    expect_refused(job, "[" PROMPT ", {\"n_prompt\": 0, \"n_gen\": 8, \"samples_ns\": [1]}]");
    expect_refused(job, "[" PROMPT ", {\"n_prompt\": 0, \"n_gen\": 8, \"samples_ns\": [1, -1]}]");
    expect_refused(job, "[" PROMPT ", {\"n_prompt\": 0, \"n_gen\": 8, \"samples_ns\": \"12\"}]");
}

static void test_what_it_cannot_do_is_said_by_the_option(void **state)
{
    (void)state;
    struct mt_error error;
    struct mt_profile_settings asked = settings;
    assert_int_equal(mt_profile_llama_bench.check(&asked, &error), 0);
    asked.batch_size = 2;
    assert_int_equal(mt_profile_llama_bench.check(&asked, &error), MT_EARG);
    assert_non_null(strstr(error.text, "--batch-size"));
    asked = settings;
    asked.prompt = "hello";
    assert_int_equal(mt_profile_llama_bench.check(&asked, &error), MT_EARG);
    assert_non_null(strstr(error.text, "--prompt"));
    asked = settings;
    asked.context_tokens = 4096;
    assert_int_equal(mt_profile_llama_bench.check(&asked, &error), MT_EARG);
    assert_non_null(strstr(error.text, "--context"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_document_gives_runs_and_facts),
        TEST(test_build_without_a_number_has_no_version),
        TEST(test_progress_lines_become_phases),
        TEST(test_lines_that_look_like_progress_change_nothing),
        TEST(test_document_that_ends_early_is_refused_at_every_length),
        TEST(test_documents_without_the_runs_are_refused),
        TEST(test_what_it_cannot_do_is_said_by_the_option),
    };
    return RUN_TESTS(tests);
}
