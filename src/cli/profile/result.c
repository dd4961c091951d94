/* SPDX-License-Identifier: MIT */
/* Making the document. */
#include "cli/profile/result.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "base/out_of_memory.h"
#include "cli/profile/timeline.h"

static const char one_device_note[] =
    "The model lies on one device, which holds nothing for any other: multi_gpu_overhead_gb is 0.";

static const char *text_or_null(const char *text)
{
    return *text ? text : NULL;
}

/* A model that has no name is called as its file. */
static void name_by_file(char *name, size_t size, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t length = strlen(base);
    if (length > 5 && strcmp(base + length - 5, ".gguf") == 0)
        length -= 5;
    snprintf(name, size, "%.*s", (int)length, base);
}

static void describe_engine(struct mt_profile_job *job, struct profile_result *result)
{
    struct mt_profile_facts *facts = &job->journal.facts;
    const struct mt_profile_engine *engine = job->engine;
    result->engine = (struct cli_document_engine){
        .name = text_or_null(facts->engine_name),
        .version = text_or_null(facts->engine_version),
        .path = *engine->modules ? engine->modules : engine->program,
    };
    result->loaded.document.engine = &result->engine;
}

static void describe_model(struct mt_profile_job *job, struct profile_result *result)
{
    struct mt_profile_facts *facts = &job->journal.facts;
    const char *path = job->settings->model_path;
    if (!*facts->model_name)
        name_by_file(facts->model_name, sizeof facts->model_name, path);
    result->model = (struct cli_document_model){
        .path = path,
        .name = facts->model_name,
        .architecture = text_or_null(facts->architecture),
        .dtype = text_or_null(facts->dtype),
        .parameters = facts->parameters,
        .weight_bytes = facts->size_bytes,
        .layers = facts->layers,
        .trained_context_tokens = facts->trained_context_tokens,
        .device_map = facts->device_map,
    };
    result->loaded.document.model = &result->model;
}

static void describe_settings(struct mt_profile_job *job, struct profile_result *result)
{
    const struct mt_profile_facts *facts = &job->journal.facts;
    result->settings = (struct cli_document_settings){
        .context_tokens = facts->context_tokens,
        .batch = facts->batch,
        .ubatch = facts->ubatch,
        .sequences = job->settings->batch_size,
        .threads = facts->threads,
        .prompt_tokens = facts->prompt_tokens,
        .generated_tokens = job->settings->max_tokens,
        .kv_type_k = text_or_null(facts->kv_type_k),
        .kv_type_v = text_or_null(facts->kv_type_v),
        .flash_attention = text_or_null(facts->flash_attention),
    };
    result->loaded.document.settings = &result->settings;
}

static void describe_notes(const struct mt_profile_job *job, struct profile_result *result)
{
    const struct cli_document *document = &result->loaded.document;
    size_t n = document->n_notes; /* what could not be seen, one at most */
    if (n)
        result->notes[0] = document->notes[0];
    if (job->engine->driver->note)
        result->notes[n++] = job->engine->driver->note;
    if (document->tally && cli_document_is_on_one_device(document))
        result->notes[n++] = one_device_note;
    result->loaded.document.notes = result->notes;
    result->loaded.document.n_notes = n;
}

static void name_phase(char name[PROFILE_NAME_TEXT], const struct mt_profile_phase *phase)
{
    const char *kind = mt_profile_phase_name(phase->kind);
    if (phase->kind != MT_PROFILE_PREFILL && phase->kind != MT_PROFILE_DECODE)
        snprintf(name, PROFILE_NAME_TEXT, "%s", kind);
    else if (phase->run == 0)
        snprintf(name, PROFILE_NAME_TEXT, "%s, warm-up", kind);
    else
        snprintf(name, PROFILE_NAME_TEXT, "%s, run %" PRIu64, kind, phase->run);
}

static uint64_t since(uint64_t start_ns, uint64_t time_ns)
{
    return time_ns > start_ns ? time_ns - start_ns : 0;
}

/* What lies between the phases is of no interest to a reader. */
static int describe_phases(struct mt_profile_job *job, uint64_t start_ns,
                           struct profile_result *result)
{
    const struct mt_profile_journal *journal = &job->journal;
    const struct cli_document *document = &result->loaded.document;
    size_t n = 0;
    result->phases = calloc(journal->n_phases + 1, sizeof *result->phases);
    result->names = calloc(journal->n_phases + 1, sizeof *result->names);
    if (!result->phases || !result->names)
        return 0;
    for (size_t i = 0; i < journal->n_phases; i++) {
        const struct mt_profile_phase *phase = &journal->phases[i];
        if (phase->kind == MT_PROFILE_IDLE || phase->end_ns == MT_UNKNOWN)
            continue;
        name_phase(result->names[n], phase);
        struct cli_document_phase *shown = &result->phases[n];
        shown->name = result->names[n];
        shown->start_ns = since(start_ns, phase->start_ns);
        shown->end_ns = since(start_ns, phase->end_ns);
        shown->peak_resident_bytes = profile_peak_within(document->timeline, document->n_timeline,
                                                         shown->start_ns, shown->end_ns);
        n++;
    }
    result->loaded.document.phases = result->phases;
    result->loaded.document.n_phases = n;
    return 1;
}

/* A run may have gone on in several stretches; its peak is the largest of theirs. */
static uint64_t peak_of_run(const struct mt_profile_journal *journal, uint64_t run,
                            uint64_t start_ns, const struct profile_result *result)
{
    const struct cli_document *document = &result->loaded.document;
    uint64_t peak = MT_UNKNOWN;
    for (size_t i = 0; i < journal->n_phases; i++) {
        const struct mt_profile_phase *phase = &journal->phases[i];
        if (phase->run != run ||
            (phase->kind != MT_PROFILE_PREFILL && phase->kind != MT_PROFILE_DECODE))
            continue;
        uint64_t bytes =
            profile_peak_within(document->timeline, document->n_timeline,
                                since(start_ns, phase->start_ns), since(start_ns, phase->end_ns));
        if (bytes != MT_UNKNOWN && (peak == MT_UNKNOWN || bytes > peak))
            peak = bytes;
    }
    return peak;
}

static int describe_runs(struct mt_profile_job *job, uint64_t start_ns,
                         struct profile_result *result)
{
    const struct mt_profile_journal *journal = &job->journal;
    result->runs = calloc(journal->n_runs + 1, sizeof *result->runs);
    if (!result->runs)
        return 0;
    for (size_t i = 0; i < journal->n_runs; i++) {
        const struct mt_profile_run *run = &journal->runs[i];
        result->runs[i] = (struct cli_document_run){
            .run = run->run,
            .warm_up = run->run == 0,
            .latency_ms = run->latency_ms,
            .prefill_ms = run->prefill_ms,
            .decode_ms = run->decode_ms,
            .peak_memory_bytes = peak_of_run(journal, run->run, start_ns, result),
            .steps = run->steps,
            .batch_size = job->settings->batch_size,
            .max_new_tokens = job->settings->max_tokens,
            .peak_device_bytes = run->peak_device_bytes,
        };
    }
    result->loaded.document.runs = result->runs;
    result->loaded.document.n_runs = journal->n_runs;
    return 1;
}

int profile_result_describe(struct mt_profile_job *job, uint64_t start_ns,
                            struct profile_result *result, struct mt_error *error)
{
    describe_engine(job, result);
    describe_model(job, result);
    describe_settings(job, result);
    describe_notes(job, result);
    if (!describe_phases(job, start_ns, result) || !describe_runs(job, start_ns, result))
        return mt_out_of_memory(error);
    return MT_OK;
}

int profile_result_make(struct mt_profile_job *job, const char *directory, uint64_t start_ns,
                        struct profile_result *result, struct mt_error *error)
{
    const struct cli_load_options options = {.moment = {.kind = MT_MOMENT_PEAK}, .is_model = 1};
    int code = cli_load(&result->loaded, directory, &options, error);
    return code == MT_OK ? profile_result_describe(job, start_ns, result, error) : code;
}

void profile_result_finish(struct profile_result *result)
{
    free(result->runs);
    free(result->phases);
    free(result->names);
    cli_unload(&result->loaded);
    *result = (struct profile_result){0};
}
