/* SPDX-License-Identifier: MIT */
/* Less on the devices: how llama.cpp and its kin run a model that its devices have no room for. In
 * the order of llama.cpp's --fit: a context that was left open becomes smaller; then experts of
 * whole layers stay on the host, since little is computed with each; then whole layers do. */
#include <inttypes.h>
#include <stdio.h>

#include "predict/fit.h"
#include "predict/sheet_parts.h"

#define REASON_BYTES 400
#define CONTEXT_STEP 256

enum move { MOVE_CONTEXT, MOVE_EXPERTS, MOVE_LAYERS };

/* A search for the smallest move that gives room. A move has `most` steps: of context, or layers
 * whose experts, or all of whose tensors, lie on the host. */
struct spill {
    const struct mt_model *model;
    struct mt_predict_settings settings;
    struct mt_engine engine;
    enum move move;
    uint64_t context_tokens; /* before the first step */
    uint64_t most;
    struct mt_error *error;
};

static void set(struct spill *spill, uint64_t steps)
{
    struct mt_predict_settings *settings = &spill->settings;
    settings->has_gpu_layers = 1;
    settings->gpu_layers = MT_ALL;
    if (spill->move == MOVE_CONTEXT)
        settings->context_tokens = spill->context_tokens - steps * CONTEXT_STEP;
    else if (spill->move == MOVE_EXPERTS)
        settings->cpu_moe_layers = steps;
    else
        settings->gpu_layers = spill->most - steps;
}

/* Whether the devices have room after so many steps. Returns 1, 0 or an error. */
static int has_room(struct spill *spill, uint64_t steps)
{
    struct mt_estimate *estimate;
    set(spill, steps);
    int result = mt_estimate_once(spill->model, &spill->settings, NULL, &estimate, spill->error);
    if (result < 0)
        return result;
    int room = mt_fit_on_devices(&estimate->tally, &estimate->settings);
    mt_estimate_destroy(estimate);
    return room;
}

/* The fewest steps that give room; all of them where that does not. Returns 1, 0 where the move
 * does not help, or an error. */
static int find(struct spill *spill, uint64_t *steps)
{
    uint64_t too_few = 0;
    uint64_t enough = spill->most;
    int room = enough ? has_room(spill, enough) : 0;
    while (room > 0 && enough - too_few > 1) {
        uint64_t middle = too_few + (enough - too_few) / 2;
        int middle_has = has_room(spill, middle);
        if (middle_has < 0)
            return middle_has;
        if (middle_has)
            enough = middle;
        else
            too_few = middle;
    }
    *steps = enough;
    return room;
}

static int replace(struct spill *spill, uint64_t steps, const struct mt_estimate_why *why,
                   struct mt_estimate **estimate)
{
    struct mt_estimate *other;
    set(spill, steps);
    int result = mt_estimate_once(spill->model, &spill->settings, why, &other, spill->error);
    if (result < 0)
        return result;
    mt_estimate_destroy(*estimate);
    *estimate = other;
    return 0;
}

/* Settings that say themselves what goes where are left alone, as are engines that do not spill. */
static int may_spill(struct spill *spill, const struct mt_estimate *estimate)
{
    const struct mt_predict_settings *settings = &spill->settings;
    if (estimate->verdict != MT_VERDICT_CANNOT || settings->has_gpu_layers ||
        !settings->n_devices || settings->n_overrides || settings->split == MT_SPLIT_ROW ||
        mt_fit_on_devices(&estimate->tally, &estimate->settings))
        return 0;
    return mt_engine_find(estimate->settings.engine, &spill->engine, NULL) == 0 &&
           mt_engine_has(&spill->engine, "flag", "gpu_layers");
}

/* A smaller context. Returns 1 where it helps; else the smallest that the engine would take is left
 * set, and the estimate is of that. */
static int shrink_context(struct spill *spill, struct mt_estimate **estimate)
{
    uint64_t least = mt_engine_number(&spill->engine, "fit.context", 0);
    uint64_t open = (*estimate)->settings.context_tokens / CONTEXT_STEP * CONTEXT_STEP;
    struct mt_estimate_why why = {
        .note = "No context was given: as the engine would, the largest is taken that the devices "
                "have room for."};
    uint64_t steps;
    if (spill->settings.context_tokens || spill->settings.program != MT_PROGRAM_SERVER || !least ||
        open <= least)
        return 0;
    spill->move = MOVE_CONTEXT;
    spill->context_tokens = open;
    spill->most = (open - least) / CONTEXT_STEP;
    int found = find(spill, &steps);
    if (found == 0)
        why.note = "No context was given: as the engine would, the smallest is taken, since the "
                   "devices have no room for more.";
    int result = found < 0 ? found : replace(spill, steps, &why, estimate);
    return result < 0 ? result : found;
}

/* Experts or layers that stay on the host. Returns 1 where that helps, 0 or an error. */
static int leave(struct spill *spill, enum move move, uint64_t most, struct mt_estimate **estimate)
{
    char reason[REASON_BYTES];
    const struct mt_estimate_why why = {.spills = reason};
    uint64_t steps;
    spill->move = move;
    spill->most = most;
    int found = find(spill, &steps);
    if (found <= 0)
        return found;
    snprintf(reason, sizeof reason,
             "%s%" PRIu64 " of %" PRIu64 " layers%s lie on the host; with all on devices, %s",
             move == MOVE_EXPERTS ? "the experts of " : "", steps, most,
             move == MOVE_EXPERTS ? "" : " and output",
             (*estimate)->reason ? (*estimate)->reason : "they do not fit");
    int result = replace(spill, steps, &why, estimate);
    return result < 0 ? result : 1;
}

int mt_estimate_spill(const struct mt_model *model, const struct mt_predict_settings *settings,
                      struct mt_estimate **estimate, struct mt_error *error)
{
    struct spill spill = {.model = model, .settings = *settings, .error = error};
    const struct mt_model_description *d = mt_model_describe(model);
    if (!may_spill(&spill, *estimate))
        return 0;
    int found = shrink_context(&spill, estimate);
    if (found == 0 && d->experts && !settings->cpu_moe_layers &&
        mt_engine_has(&spill.engine, "flag", "cpu_moe"))
        found = leave(&spill, MOVE_EXPERTS, d->n_layers, estimate);
    spill.settings.cpu_moe_layers = settings->cpu_moe_layers;
    if (found == 0) /* the output counts as a layer */
        found = leave(&spill, MOVE_LAYERS, d->n_layers - d->n_draft_layers + 1, estimate);
    return found < 0 ? found : 0;
}
