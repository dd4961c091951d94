/* SPDX-License-Identifier: MIT */
/* The driver of llama-bench: progress and log on its standard error, one JSON document on its
 * standard output. It measures prompt processing and generation in two contexts of their own, one
 * after the other. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include <memtally/error_code.h>

#include "base/ticks.h"
#include "json_get.h"
#include "llama_bench.h"

#define OUTPUT_MAX ((size_t)16 * 1024 * 1024)

static int check(const struct mt_profile_settings *settings, struct mt_error *error)
{
    if (settings->batch_size > 1)
        return mt_profile_refuse(
            error, "llama-bench generates one sequence at a time, so --batch-size above "
                   "1 has no meaning for it");
    if (settings->prompt)
        return mt_profile_refuse(
            error, "llama-bench makes up its own prompt, so --prompt has no meaning for "
                   "it (--prompt-tokens does)");
    if (settings->context_tokens)
        return mt_profile_refuse(
            error, "llama-bench makes its context as large as the prompt and the output, "
                   "so --context has no meaning for it");
    return mt_profile_refuse_package_settings(settings, error);
}

static int command(struct mt_profile_job *job, struct mt_profile_command *words,
                   struct mt_error *error)
{
    (void)error;
    const struct mt_profile_settings *settings = job->settings;
    const struct mt_profile_value values[] = {{'m', settings->model_path, 0},
                                              {'l', NULL, settings->prompt_tokens},
                                              {'g', NULL, settings->max_tokens},
                                              {'r', NULL, settings->repeats},
                                              {0}};
    mt_profile_command_add(words, job->engine->program);
    mt_profile_command_put(words, NULL, "profile.bench", values);
    mt_profile_command_common(words, settings);
    return MT_OK;
}

/* "llama-bench: benchmark 1/2: prompt run 2/3". */
static void take_progress(struct mt_profile_job *job, const char *line, uint64_t time_ns)
{
    unsigned test = 0;
    int length = 0;
    unsigned run = 0;
    if (sscanf(line, "llama-bench: benchmark %u/%*u: %n", &test, &length) < 1 || length == 0)
        return;
    const char *what = line + length;
    if (strcmp(what, "starting") == 0)
        mt_profile_journal_enter(&job->journal, test == 1 ? MT_PROFILE_LOAD : MT_PROFILE_CONTEXT, 0,
                                 time_ns);
    else if (strcmp(what, "warmup prompt run") == 0)
        mt_profile_journal_enter(&job->journal, MT_PROFILE_PREFILL, 0, time_ns);
    else if (strcmp(what, "warmup generation run") == 0)
        mt_profile_journal_enter(&job->journal, MT_PROFILE_DECODE, 0, time_ns);
    else if (sscanf(what, "prompt run %u/", &run) == 1)
        mt_profile_journal_enter(&job->journal, MT_PROFILE_PREFILL, run, time_ns);
    else if (sscanf(what, "generation run %u/", &run) == 1)
        mt_profile_journal_enter(&job->journal, MT_PROFILE_DECODE, run, time_ns);
}

static int take_line(struct mt_profile_job *job, enum mt_profile_stream stream, const char *line,
                     size_t length, uint64_t time_ns)
{
    if (stream == MT_PROFILE_STDERR) {
        take_progress(job, line, time_ns);
        return 0;
    }
    if (job->output.length + length > OUTPUT_MAX) {
        mt_profile_journal_fail(&job->journal, MT_ELIMIT, "llama-bench prints without end");
        return 0;
    }
    mt_strbuf_append(&job->output, line, length);
    mt_strbuf_puts(&job->output, "\n");
    return 1;
}

/* The test of the document that has these numbers of tokens, or NULL. */
static const json_t *find_test(const json_t *document, uint64_t prompt_tokens, uint64_t generated)
{
    size_t i;
    json_t *test;
    json_array_foreach(document, i, test)
    {
        if (mt_profile_json_count(test, "n_prompt") == prompt_tokens &&
            mt_profile_json_count(test, "n_gen") == generated)
            return test;
    }
    return NULL;
}

/* The nanoseconds of sample `i` of a test, or MT_UNKNOWN. */
static uint64_t sample_ns(const json_t *test, size_t i)
{
    const json_t *sample = json_array_get(json_object_get(test, "samples_ns"), i);
    if (!json_is_integer(sample) || json_integer_value(sample) <= 0)
        return UINT64_MAX;
    return (uint64_t)json_integer_value(sample);
}

static void take_version(struct mt_profile_facts *facts, const json_t *test)
{
    uint64_t number = mt_profile_json_count(test, "build_number");
    const char *commit = mt_profile_json_text(test, "build_commit");
    MT_PROFILE_SET_TEXT(facts->engine_name, "llama.cpp");
    if (number == 0 || number == UINT64_MAX)
        return;
    snprintf(facts->engine_version, sizeof facts->engine_version, "b%" PRIu64 "%s%s%s", number,
             commit ? " (" : "", commit ? commit : "", commit ? ")" : "");
}

/* "qwen3 4B Q4_K - Medium": architecture, size, type. */
static void take_model_type(struct mt_profile_facts *facts, const char *type)
{
    const char *size = type ? strchr(type, ' ') : NULL;
    const char *dtype = size ? strchr(size + 1, ' ') : NULL;
    if (!dtype)
        return;
    snprintf(facts->architecture, sizeof facts->architecture, "%.*s", (int)(size - type), type);
    MT_PROFILE_SET_TEXT(facts->dtype, dtype + 1);
}

static void take_facts(struct mt_profile_job *job, const json_t *test)
{
    struct mt_profile_facts *facts = mt_profile_journal_lock_facts(&job->journal);
    take_version(facts, test);
    take_model_type(facts, mt_profile_json_text(test, "model_type"));
    facts->parameters = mt_profile_json_count(test, "model_n_params");
    facts->size_bytes = mt_profile_json_count(test, "model_size");
    facts->batch = mt_profile_json_count(test, "n_batch");
    facts->ubatch = mt_profile_json_count(test, "n_ubatch");
    facts->threads = mt_profile_json_count(test, "n_threads");
    facts->prompt_tokens = job->settings->prompt_tokens;
    MT_PROFILE_SET_TEXT(facts->kv_type_k, mt_profile_json_text(test, "type_k"));
    MT_PROFILE_SET_TEXT(facts->kv_type_v, mt_profile_json_text(test, "type_v"));
    mt_profile_journal_unlock_facts(&job->journal);
}

/* A phase of a timed run ends with its sample, not with the next line. */
static void end_phases(struct mt_profile_job *job, const json_t *prompt, const json_t *generation)
{
    struct mt_profile_journal *journal = &job->journal;
    for (size_t i = 0; i < journal->n_phases; i++) {
        struct mt_profile_phase *phase = &journal->phases[i];
        if (phase->run == 0 ||
            (phase->kind != MT_PROFILE_PREFILL && phase->kind != MT_PROFILE_DECODE))
            continue;
        const json_t *test = phase->kind == MT_PROFILE_PREFILL ? prompt : generation;
        uint64_t length_ns = sample_ns(test, (size_t)phase->run - 1);
        if (length_ns < phase->end_ns - phase->start_ns)
            phase->end_ns = phase->start_ns + length_ns;
    }
}

static int take_runs(struct mt_profile_job *job, const json_t *prompt, const json_t *generation)
{
    for (uint64_t run = 1; run <= job->settings->repeats; run++) {
        uint64_t prefill_ns = sample_ns(prompt, (size_t)run - 1);
        uint64_t decode_ns = sample_ns(generation, (size_t)run - 1);
        if (prefill_ns == UINT64_MAX || decode_ns == UINT64_MAX)
            return MT_EFORMAT;
        double prefill_ms = (double)prefill_ns / 1e6;
        double decode_ms = (double)decode_ns / 1e6;
        mt_profile_journal_add_run(&job->journal,
                                   &(struct mt_profile_run){run, prefill_ms + decode_ms, prefill_ms,
                                                            decode_ms, job->settings->max_tokens,
                                                            UINT64_MAX});
    }
    return MT_OK;
}

/* Says what is wrong with a text that is no JSON. */
static void fail_to_parse(struct mt_profile_job *job, const char *text, size_t length,
                          const json_error_t *where)
{
    int begins = (int)strcspn(text, "\n");
    if (length == 0)
        mt_profile_journal_fail(&job->journal, MT_EFORMAT, "llama-bench ended without its report");
    else if (json_error_code(where) == json_error_premature_end_of_input)
        mt_profile_journal_fail(&job->journal, MT_EFORMAT,
                                "the report that llama-bench printed ends too early");
    else
        mt_profile_journal_fail(
            &job->journal, MT_EFORMAT,
            "llama-bench printed something else than its report; it begins with "
            "'%.*s'",
            begins < 60 ? begins : 60, text);
}

int mt_profile_llama_bench_take(struct mt_profile_job *job, const char *text, size_t length)
{
    json_error_t where;
    json_t *document = json_loadb(text, length, 0, &where);
    const json_t *prompt = find_test(document, job->settings->prompt_tokens, 0);
    const json_t *generation = find_test(document, 0, job->settings->max_tokens);
    int code = prompt && generation ? take_runs(job, prompt, generation) : MT_EFORMAT;
    if (code == MT_OK) {
        take_facts(job, prompt);
        mt_profile_journal_complete(&job->journal, mt_monotonic_ns());
        end_phases(job, prompt, generation);
    } else if (!document) {
        fail_to_parse(job, text, length, &where);
    } else {
        mt_profile_journal_fail(&job->journal, code,
                                "llama-bench's report lacks the times of its runs; this may be a "
                                "version that memtally does not know");
    }
    json_decref(document);
    return code;
}

static void conclude(struct mt_profile_job *job)
{
    mt_profile_llama_bench_take(job, mt_strbuf_text(&job->output), job->output.length);
}

const struct mt_profile_driver mt_profile_llama_bench = {
    .name = "llama-bench",
    .check = check,
    .command = command,
    .take_line = take_line,
    .conclude = conclude,
    .note = "llama-bench measures prompt and generation in two contexts of their own, one after "
            "the other",
};
