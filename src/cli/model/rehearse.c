/* SPDX-License-Identifier: MIT */
/* An estimate that the engine itself makes. */
#include <memtally/predict.h>
#include <stdio.h>
#include <stdlib.h>

#include "advise/model.h"
#include "cli/model/model.h"
#include "cli/residue_store.h"

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

/* The engine's answer takes the place of the one by rules. */
static void take(struct estimate_result *result, const struct mt_advise_staged *staged,
                 struct mt_estimate *estimate)
{
    mt_estimate_destroy(result->estimate);
    result->estimate = estimate;
    snprintf(result->engine_path, sizeof result->engine_path, "%s", staged->program_path);
    result->engine = (struct cli_document_engine){.name = estimate->tally.engine_name,
                                                  .version = estimate->tally.engine_version,
                                                  .path = result->engine_path};
}

void estimate_take_converted(const struct mt_advise_staged *staged,
                             struct cli_document_model *model)
{
    if (!staged->file_type)
        return;
    model->dtype = staged->file_type;
    if (staged->is_converted)
        model->weight_bytes = staged->weight_bytes;
}

struct mt_drive_stage_options estimate_stage(const struct estimate_result *result, const char *name,
                                             const struct estimate_request *request,
                                             const struct estimate_options *options)
{
    return (struct mt_drive_stage_options){.environment = environ,
                                           .program = request->settings.program,
                                           .may_be_node = request->may_be_node,
                                           .engine_name = options->engine,
                                           .engine_path = options->engine_path,
                                           .model = result->model,
                                           .model_name = name,
                                           .write_sparse =
                                               options->remote ? estimate_write_remote : NULL,
                                           .file_type = options->weight_type,
                                           .generation = request->generation,
                                           .device_names = request->device_names,
                                           .reserved_bytes = request->reserved_bytes,
                                           .timeout_ns = request->timeout_ns,
                                           .interrupted = request->interrupted};
}

int estimate_rehearse(struct estimate_result *result, const char *name,
                      const struct estimate_request *request,
                      const struct estimate_options *options, struct mt_error *error)
{
    const struct mt_drive_stage_options stage = estimate_stage(result, name, request, options);
    struct mt_predict_settings settings = request->settings;
    struct mt_residue *residues = NULL;
    struct mt_advise_staged staged;
    struct mt_estimate *estimate;
    if (result->has_answer && result->answer.value)
        take_answer(result, &settings);
    int failed = cli_residues_for(result->model, &settings, &residues, &settings.n_residues, error);
    settings.residues = residues;
    if (!failed)
        failed =
            mt_advise_staged_model(&stage, &settings, request->report, &staged, &estimate, error);
    free(residues);
    if (failed)
        return failed;
    take(result, &staged, estimate);
    estimate_take_converted(&staged, &result->document_model);
    return 0;
}
