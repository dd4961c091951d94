/* SPDX-License-Identifier: MIT */
/* One model, estimated or solved for, as a document. */
#include <memtally/predict.h>
#include <stdlib.h>

#include <memtally/units.h>

#include "cli/command.h"
#include "cli/model/model.h"
#include "cli/residue_store.h"

static const struct cli_document_answer answers[] = {
    [MT_GOAL_CONTEXT] = {.goal = "max_context", .what = "tokens of context"},
    [MT_GOAL_SEQUENCES] = {.goal = "max_sequences", .what = "sequences at a time"},
    [MT_GOAL_BATCH] = {.goal = "max_batch", .what = "tokens computed at a time"},
    [MT_GOAL_SMALLEST_DEVICE] = {.goal = "smallest_device", .what = "on each device", .is_size = 1},
};

/* Why the search ended, where it was not for memory. */
static const char *limit_of(const struct estimate_result *result, int goal)
{
    const struct mt_model_description *d = mt_model_describe(result->model);
    uint64_t value = result->answer.value;
    if (goal == MT_GOAL_CONTEXT && d->context_length && value <= d->context_length &&
        d->context_length - value < 256)
        return "the model was not trained for more";
    if (goal == MT_GOAL_BATCH && value == result->estimate->settings.context_tokens)
        return "more is of no use in this context";
    return NULL;
}

/* The least that could have been asked for. */
static void set_least(struct mt_predict_settings *settings, int goal)
{
    if (goal == MT_GOAL_CONTEXT)
        settings->context_tokens = 256;
    else if (goal == MT_GOAL_SEQUENCES)
        settings->sequences = 1;
    else if (goal == MT_GOAL_BATCH)
        settings->ubatch = 1;
}

/* With the layers on the devices, as they were for the answer. */
static void name_cards(struct estimate_result *result, const struct mt_predict_settings *asked)
{
    struct mt_predict_settings settings = *asked;
    settings.has_gpu_layers = result->estimate->settings.has_gpu_layers;
    settings.gpu_layers = result->estimate->settings.gpu_layers;
    estimate_name_cards(result->model, &settings, &result->answer, &result->cards);
}

static int solve(struct estimate_result *result, const struct mt_predict_settings *settings,
                 int goal, struct mt_error *error)
{
    result->goal = (enum mt_goal)goal;
    result->answer = answers[goal];
    result->has_answer = 1;
    int failed = mt_estimate_solve(result->model, settings, (enum mt_goal)goal,
                                   &result->answer.value, &result->estimate, error);
    if (failed)
        return failed;
    if (result->answer.value) {
        result->answer.limit = limit_of(result, goal);
        if (goal == MT_GOAL_SMALLEST_DEVICE)
            name_cards(result, settings);
        return 0;
    }
    struct mt_predict_settings least = *settings;
    set_least(&least, goal);
    return mt_estimate_create(result->model, &least, &result->estimate, error);
}

static void describe(struct estimate_result *result)
{
    const struct mt_model_description *d = mt_model_describe(result->model);
    result->document_model = (struct cli_document_model){
        .path = d->path,
        .name = d->name,
        .architecture = d->architecture,
        .dtype = d->dtype,
        .is_converted = d->format != MT_MODEL_GGUF,
        .parameters = d->parameters,
        .weight_bytes = d->weight_bytes,
        .layers = d->n_layers,
        .trained_context_tokens = d->context_length ? d->context_length : MT_UNKNOWN,
    };
}

int estimate_make(struct estimate_result *result, const char *name, int remote,
                  const struct mt_predict_settings *settings, int goal, struct mt_error *error)
{
    int failed = estimate_open_model(name, remote, &result->model, error);
    if (failed)
        return failed;
    describe(result);
    struct mt_predict_settings calibrated = *settings;
    struct mt_residue *residues = NULL;
    failed = cli_residues_for(result->model, settings, &residues, &calibrated.n_residues, error);
    calibrated.residues = residues;
    if (!failed && goal >= 0)
        failed = solve(result, &calibrated, goal, error);
    else if (!failed)
        failed = mt_estimate_create(result->model, &calibrated, &result->estimate, error);
    free(residues);
    return failed;
}

void estimate_result_finish(struct estimate_result *result)
{
    mt_estimate_destroy(result->estimate);
    mt_model_close(result->model);
}

int estimate_exit_of(const struct estimate_result *result)
{
    enum mt_verdict verdict = result->estimate->verdict;
    if (result->has_answer)
        return result->answer.value ? CLI_EXIT_OK : CLI_EXIT_NO;
    return verdict == MT_VERDICT_SPILLS || verdict == MT_VERDICT_PAGES ||
                   verdict == MT_VERDICT_CANNOT
               ? CLI_EXIT_NO
               : CLI_EXIT_OK;
}

struct cli_document estimate_document(const struct estimate_result *result,
                                      const struct estimate_request *request,
                                      const struct estimate_options *options)
{
    struct cli_document document = CLI_DOCUMENT_EMPTY;
    document.tally = &result->estimate->tally;
    document.estimate = result->estimate;
    document.engine = result->engine.path ? &result->engine : NULL;
    document.model = &result->document_model;
    document.answer = result->has_answer ? &result->answer : NULL;
    document.explain = options->explain;
    document.notes = request->notes;
    document.n_notes = request->n_notes;
    return document;
}
