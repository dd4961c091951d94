/* SPDX-License-Identifier: MIT */
/* The driver of node-llama-cpp. Its program in engines/ does the work and reports one JSON event a
 * line; the grammar is on top of that program. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "json_get.h"
#include "profile.h"

static json_t *count_or_null(uint64_t count)
{
    return count ? json_integer((json_int_t)count) : json_null();
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static char *settings_json(const struct mt_profile_job *job)
{
    const struct mt_profile_settings *settings = job->settings;
    json_t *json = json_pack(
        "{s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I}", "modules", job->engine->modules,
        "model", settings->model_path, "prompt", text_or_null(settings->prompt), "prompt_tokens",
        (json_int_t)settings->prompt_tokens, "max_tokens", (json_int_t)settings->max_tokens,
        "batch_size", (json_int_t)settings->batch_size, "context",
        (json_int_t)settings->context_tokens, "kv_type", text_or_null(settings->kv_type),
        "gpu_layers", text_or_null(settings->gpu_layers), "threads",
        count_or_null(settings->threads), "repeats", (json_int_t)settings->repeats);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

static int check(const struct mt_profile_settings *settings, struct mt_error *error)
{
    (void)settings;
    (void)error;
    return MT_OK;
}

static int command(struct mt_profile_job *job, struct mt_profile_command *words,
                   struct mt_error *error)
{
    char *settings = settings_json(job);
    if (!settings)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "the prompt and the paths must be UTF-8 text to be passed to the engine");
    mt_profile_command_add(words, job->engine->program);
    mt_profile_command_add(words, job->engine->script);
    mt_profile_command_add(words, settings);
    free(settings);
    return MT_OK;
}

static void take_engine(struct mt_profile_job *job, const json_t *event)
{
    const char *version = mt_profile_json_text(event, "version");
    const char *binding = mt_profile_json_text(event, "binding");
    struct mt_profile_facts *facts = mt_profile_journal_lock_facts(&job->journal);
    MT_PROFILE_SET_TEXT(facts->engine_name, mt_profile_json_text(event, "name"));
    snprintf(facts->engine_version, sizeof facts->engine_version, "%s%s%s%s",
             version ? version : "unknown", binding ? " (" : "", binding ? binding : "",
             binding ? ")" : "");
    mt_profile_journal_unlock_facts(&job->journal);
}

static void take_model(struct mt_profile_job *job, const json_t *event)
{
    struct mt_profile_facts *facts = mt_profile_journal_lock_facts(&job->journal);
    MT_PROFILE_SET_TEXT(facts->model_name, mt_profile_json_text(event, "name"));
    MT_PROFILE_SET_TEXT(facts->architecture, mt_profile_json_text(event, "architecture"));
    MT_PROFILE_SET_TEXT(facts->dtype, mt_profile_json_text(event, "dtype"));
    facts->parameters = mt_profile_json_count(event, "parameters");
    facts->size_bytes = mt_profile_json_count(event, "size_bytes");
    facts->layers = mt_profile_json_count(event, "layers");
    facts->trained_context_tokens = mt_profile_json_count(event, "trained_context_tokens");
    mt_profile_journal_unlock_facts(&job->journal);
}

static void take_settings(struct mt_profile_job *job, const json_t *event)
{
    struct mt_profile_facts *facts = mt_profile_journal_lock_facts(&job->journal);
    facts->context_tokens = mt_profile_json_count(event, "context_tokens");
    facts->batch = mt_profile_json_count(event, "batch");
    facts->threads = mt_profile_json_count(event, "threads");
    facts->prompt_tokens = mt_profile_json_count(event, "prompt_tokens");
    MT_PROFILE_SET_TEXT(facts->kv_type_k, mt_profile_json_text(event, "kv_type_k"));
    MT_PROFILE_SET_TEXT(facts->kv_type_v, mt_profile_json_text(event, "kv_type_v"));
    mt_profile_journal_unlock_facts(&job->journal);
}

static void take_phase(struct mt_profile_job *job, const json_t *event)
{
    const char *name = mt_profile_json_text(event, "name");
    uint64_t run = mt_profile_json_count(event, "run");
    uint64_t time_ns = mt_profile_json_count(event, "time_ns");
    enum mt_profile_phase_kind kind = name ? mt_profile_phase_by_name(name) : MT_PROFILE_PHASES;
    if (kind == MT_PROFILE_PHASES || run > job->settings->repeats || time_ns == UINT64_MAX)
        mt_profile_journal_fail(&job->journal, MT_EFORMAT,
                                "the engine's program reported a phase that makes no sense");
    else
        mt_profile_journal_enter(&job->journal, kind, run, time_ns);
}

static void take_run(struct mt_profile_job *job, const json_t *event)
{
    struct mt_profile_run run = {.run = mt_profile_json_count(event, "run"),
                                 .latency_ms = mt_profile_json_real(event, "latency_ms"),
                                 .prefill_ms = mt_profile_json_real(event, "prefill_ms"),
                                 .decode_ms = mt_profile_json_real(event, "decode_ms"),
                                 .steps = mt_profile_json_count(event, "steps")};
    if (run.run > job->settings->repeats || run.latency_ms < 0 || run.steps == UINT64_MAX)
        mt_profile_journal_fail(&job->journal, MT_EFORMAT,
                                "the engine's program reported a run that makes no sense");
    else
        mt_profile_journal_add_run(&job->journal, &run);
}

static void take_error(struct mt_profile_job *job, const json_t *event)
{
    const char *message = mt_profile_json_text(event, "message");
    mt_profile_journal_fail(&job->journal, MT_ECHILD, "node-llama-cpp: %s",
                            message ? message : "an error without words");
}

static void take_done(struct mt_profile_job *job, const json_t *event)
{
    mt_profile_journal_complete(&job->journal, mt_profile_json_count(event, "time_ns"));
}

static const struct {
    const char *name;
    void (*take)(struct mt_profile_job *job, const json_t *event);
} events[] = {
    {"engine", take_engine}, {"model", take_model}, {"settings", take_settings},
    {"phase", take_phase},   {"run", take_run},     {"error", take_error},
    {"done", take_done},
};

/* Libraries within the engine may print to standard output too, so what is no event is no error. */
static int take_line(struct mt_profile_job *job, enum mt_profile_stream stream, const char *line,
                     size_t length, uint64_t time_ns)
{
    (void)time_ns;
    if (stream != MT_PROFILE_STDOUT || length == 0 || line[0] != '{')
        return 0;
    json_t *event = json_loadb(line, length, 0, NULL);
    const char *name = mt_profile_json_text(event, "event");
    int taken = 0;
    for (size_t i = 0; name && i < sizeof events / sizeof *events; i++) {
        if (strcmp(name, events[i].name) == 0) {
            events[i].take(job, event);
            taken = 1;
        }
    }
    json_decref(event);
    return taken;
}

const struct mt_profile_driver mt_profile_node_llama_cpp = {
    .name = "node-llama-cpp",
    .check = check,
    .command = command,
    .take_line = take_line,
};
