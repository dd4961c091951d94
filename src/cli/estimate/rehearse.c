/* SPDX-License-Identifier: MIT */
/* An estimate that the engine itself makes, where it is on this machine. */
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/model.h"
#include "base/error.h"
#include "cli/estimate/estimate.h"
#include "cli/residue_store.h"

/* Ollama and the like are kin of llama.cpp, but no programs of it. */
static int is_llama_cpp(const char *engine)
{
    static const char name[] = "llama.cpp";
    return !engine || (!strncmp(engine, name, sizeof name - 1) &&
                       (engine[sizeof name - 1] == '\0' || engine[sizeof name - 1] == '@'));
}

int estimate_may_rehearse(const struct estimate_options *options)
{
    const char *never = getenv("MEMTALLY_NO_REHEARSE");
    return !options->no_rehearse && !(never && *never) && is_llama_cpp(options->engine) &&
           !options->matrix;
}

/* What a search found is rehearsed as it was found, with all on the devices. Sequences that neither
 * the user nor the search chose are left to the engine: a server that is told their number no
 * longer has one cache for all. */
static void take_answer(const struct estimate_result *result, struct mt_predict_settings *settings)
{
    const struct mt_predict_settings *found = &result->estimate->settings;
    settings->context_tokens = found->context_tokens;
    if (settings->sequences || result->goal == MT_GOAL_SEQUENCES)
        settings->sequences = found->sequences;
    settings->ubatch = found->ubatch;
    if (result->goal == MT_GOAL_BATCH)
        settings->batch = found->batch;
    settings->device_bytes = found->device_bytes;
    settings->n_devices = found->n_devices;
    settings->sizes_are_sought = found->sizes_are_sought;
    settings->has_gpu_layers = 1;
    settings->gpu_layers = found->gpu_layers;
}

static int rehearse(const struct mt_drive_stage *stage, const struct mt_predict_settings *settings,
                    struct mt_advise_model_report *report, struct mt_estimate **estimate,
                    struct mt_error *error)
{
    struct mt_predict_settings calibrated = *settings;
    struct mt_residue *residues = NULL;
    int failed = cli_residues_for(stage->model, settings, &residues, &calibrated.n_residues, error);
    calibrated.residues = residues;
    if (!failed)
        failed = mt_advise_model(stage, &calibrated, 0, report, estimate, error);
    free(residues);
    return failed;
}

/* The engine's answer takes the place of the one by rules. */
static void take(struct estimate_result *result, const struct mt_drive_stage *stage,
                 struct mt_estimate *estimate)
{
    mt_estimate_destroy(result->estimate);
    result->estimate = estimate;
    snprintf(result->engine_path, sizeof result->engine_path, "%s", stage->program_path);
    result->engine = (struct cli_document_engine){.name = "llama.cpp",
                                                  .version = estimate->tally.engine_version,
                                                  .path = result->engine_path};
}

void estimate_take_converted(const struct mt_drive_stage *stage, struct cli_document_model *model)
{
    if (!stage->file_type)
        return;
    model->dtype = stage->file_type;
    mt_drive_stage_converted(stage, &model->weight_bytes);
}

int estimate_rehearse(struct estimate_result *result, const char *name,
                      const struct estimate_request *request,
                      const struct estimate_options *options, struct mt_error *error)
{
    struct mt_predict_settings settings = request->settings;
    struct mt_estimate *estimate;
    struct mt_drive_stage stage;
    const struct mt_drive_stage_options wanted = {
        .environment = environ,
        .program = settings.program,
        .may_be_node = request->may_be_node,
        .engine_name = options->engine,
        .engine_path = options->engine_path,
        .model = result->model,
        .model_name = name,
        .write_sparse = options->remote ? estimate_write_remote : NULL,
        .file_type = options->weight_type,
        .generation = request->generation,
        .device_names = request->device_names,
        .reserved_bytes = request->reserved_bytes,
        .timeout_ns = request->timeout_ns,
        .interrupted = request->interrupted};
    int failed = mt_drive_check_devices(settings.n_devices, error);
    if (!failed)
        failed = mt_drive_stage_init(&stage, &wanted, error);
    if (failed)
        return failed;
    if (result->has_answer && result->answer.value)
        take_answer(result, &settings);
    failed = rehearse(&stage, &settings, request->report, &estimate, error);
    if (!failed)
        take(result, &stage, estimate);
    if (!failed)
        estimate_take_converted(&stage, &result->document_model);
    mt_drive_stage_finish(&stage);
    return failed;
}

static void note_rules(struct estimate_result *result, struct estimate_request *request,
                       const char *program, const char *why)
{
    size_t length = strlen(why);
    snprintf(result->note, sizeof result->note,
             "By rules, because memtally could not rehearse %s: %s%s", program, why,
             length && why[length - 1] == '.' ? "" : ".");
    if (request->n_notes < ESTIMATE_NOTES_MAX)
        request->notes[request->n_notes++] = result->note;
}

/* What is rehearsed runs on this machine's processor, and matrices of a model that is on no device
 * lie in its layout. */
static int runs_elsewhere(const struct estimate_request *request)
{
    return !request->settings.n_devices && request->settings.processor != mt_processor_here();
}

int estimate_must_rehearse(struct estimate_result *result, const char *name,
                           struct estimate_request *request, const struct estimate_options *options,
                           struct mt_error *error)
{
    if (options->cpu && runs_elsewhere(request))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "estimate: the engine at --engine-path runs on this machine's processor, of "
                       "kind %s, and --cpu names another; leave one out",
                       mt_processor_name(mt_processor_here()));
    int failed = estimate_rehearse(result, name, request, options, error);
    if (failed != MT_ECHILD || (request->interrupted && *request->interrupted))
        return failed;
    note_rules(result, request, options->engine_path, error->text);
    return 0;
}

void estimate_try_to_rehearse(struct estimate_result *result, const char *name,
                              struct estimate_request *request,
                              const struct estimate_options *options)
{
    char program[PATH_MAX];
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (!estimate_may_rehearse(options) || (result->has_answer && !result->answer.value) ||
        runs_elsewhere(request) ||
        mt_drive_find_program(estimate_program(options), NULL, environ, program, NULL) < 0 ||
        !estimate_rehearse(result, name, request, options, &error) || error.code == MT_EVERSION)
        return;
    note_rules(result, request, program, error.text);
}

int estimate_confirm(struct estimate_result *result, const char *name,
                     struct estimate_request *request, const struct estimate_options *options,
                     struct mt_error *error)
{
    if (options->engine_path)
        return estimate_must_rehearse(result, name, request, options, error);
    estimate_try_to_rehearse(result, name, request, options);
    return 0;
}
