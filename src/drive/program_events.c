/* SPDX-License-Identifier: MIT */
/* Events of our programs in engines/. */
#include "program_events.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "json_get.h"

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
    if (!facts->device_map && json_is_object(json_object_get(event, "device_map")))
        facts->device_map = json_deep_copy(json_object_get(event, "device_map"));
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
                                 .peak_device_bytes =
                                     mt_profile_json_count(event, "peak_device_bytes"),
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
    int is_usage = json_is_true(json_object_get(event, "usage"));
    mt_profile_journal_fail(&job->journal, is_usage ? MT_EARG : MT_ECHILD, "%s: %s",
                            job->engine->driver->name,
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
int mt_profile_take_event(struct mt_profile_job *job, enum mt_profile_stream stream,
                          const char *line, size_t length, uint64_t time_ns)
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

int mt_profile_script_command(const struct mt_profile_job *job, struct mt_profile_command *words,
                              char *settings, struct mt_error *error)
{
    if (!settings)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "the prompt and the paths must be UTF-8 text to be passed to the engine");
    mt_profile_command_add(words, job->engine->program);
    mt_profile_command_add(words, job->engine->script);
    mt_profile_command_add(words, settings);
    free(settings);
    return MT_OK;
}
