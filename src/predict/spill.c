/* SPDX-License-Identifier: MIT */
/* Less on the devices: how llama.cpp and its kin run a model that there is no room for. In the
 * order of llama.cpp's --fit: a context that was left open becomes smaller, until the engine's own
 * plan leaves a margin free; then, where the rest has no room at all, experts of whole layers stay
 * on the host, since little is computed with each; then whole layers do. */
#include <inttypes.h>
#include <memtally/model_file.h>
#include <memtally/predict.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "predict/fit.h"
#include "sheet_internal.h"

#define REASON_BYTES 400
#define CONTEXT_STEP 256

enum move { MOVE_CONTEXT, MOVE_EXPERTS, MOVE_LAYERS };

/* A search for the smallest move that gives room. A move has `most` steps: of context, or layers
 * whose experts, or all of whose tensors, lie on the host. */
struct spill {
    const struct mt_model *model;
    uint64_t margin_bytes; /* of each place, that the engine leaves free */
    uint64_t waste_bytes;  /* by which it is careful where several devices share a model */
    struct mt_predict_settings settings;
    const struct mt_engine *engine;
    enum move move;
    uint64_t context_tokens; /* before the first step */
    uint64_t most;
    struct mt_error *error;
};

static void set(struct spill *spill, uint64_t steps)
{
    struct mt_predict_settings *settings = &spill->settings;
    if (spill->move == MOVE_CONTEXT) {
        settings->context_tokens = spill->context_tokens - steps * CONTEXT_STEP;
        return;
    }
    settings->has_gpu_layers = 1;
    settings->gpu_layers = spill->move == MOVE_EXPERTS ? MT_ALL : spill->most - steps;
    if (spill->move == MOVE_EXPERTS)
        settings->cpu_moe_layers = steps;
}

static int is_in_another_layout(const struct mt_tally_detail *detail)
{
    static const char *const names[] = {"repacked weights", "weights for AMX",
                                        "weights for KleidiAI"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(detail->name, names[i]))
            return 1;
    return 0;
}

/* What the engine's own plan of a place counts: neither what the driver or the program hold, nor
 * weights in another layout or their mapped originals. */
static uint64_t counted_bytes(const struct mt_tally_place *place)
{
    const struct mt_tally_row *weights = mt_tally_row_of(place, MT_CATEGORY_WEIGHTS);
    const struct mt_tally_row *context = mt_tally_row_of(place, MT_CATEGORY_CONTEXT);
    const struct mt_tally_row *runtime = mt_tally_row_of(place, MT_CATEGORY_RUNTIME);
    uint64_t bytes = place->total_allocated_bytes;
    bytes -= context ? context->allocated_bytes : 0;
    bytes -= runtime ? runtime->allocated_bytes : 0;
    for (size_t i = 0; weights && i < weights->n_details; i++) {
        const struct mt_tally_detail *detail = &weights->details[i];
        if (mt_fit_is_mapped(detail))
            bytes -= detail->allocated_bytes - detail->low_bytes;
        else if (is_in_another_layout(detail))
            bytes -= detail->allocated_bytes;
    }
    return bytes;
}

/* Whether the engine's own plan finds room for all: on its devices together, or on the host where
 * there is none. What the driver takes of a device is not free to it. */
static int engine_has_room(const struct spill *spill, const struct mt_estimate *estimate)
{
    const struct mt_predict_settings *settings = &estimate->settings;
    double wanted = (double)spill->waste_bytes;
    double free_bytes = settings->n_devices ? 0 : (double)settings->host_bytes;
    for (size_t i = 0; i < estimate->tally.n_places; i++) {
        const struct mt_tally_place *place = &estimate->tally.places[i];
        const struct mt_tally_row *context = mt_tally_row_of(place, MT_CATEGORY_CONTEXT);
        if (settings->n_devices && !strcmp(place->place, "host"))
            continue;
        wanted += (double)counted_bytes(place) + (double)spill->margin_bytes;
        if (settings->n_devices)
            free_bytes +=
                (double)place->capacity_bytes - (context ? (double)context->allocated_bytes : 0);
    }
    for (size_t i = 0; settings->device_used_bytes && i < settings->n_devices; i++)
        free_bytes -= (double)settings->device_used_bytes[i];
    return wanted <= free_bytes;
}

/* Whether there is room after so many steps. Returns 1, 0 or an error. */
static int has_room(struct spill *spill, uint64_t steps)
{
    struct mt_estimate *estimate;
    set(spill, steps);
    int result = mt_estimate_once(spill->engine, spill->model, &spill->settings, NULL, &estimate,
                                  spill->error);
    if (result < 0)
        return result;
    int room = spill->move == MOVE_CONTEXT
                   ? engine_has_room(spill, estimate)
                   : mt_fit_on_devices(&estimate->tally, &estimate->settings);
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
    int result =
        mt_estimate_once(spill->engine, spill->model, &spill->settings, why, &other, spill->error);
    if (result < 0)
        return result;
    mt_estimate_destroy(*estimate);
    *estimate = other;
    return 0;
}

/* Settings that say themselves what goes where are left alone, as are engines that do not spill. */
static int may_leave(const struct spill *spill, const struct mt_estimate *estimate)
{
    const struct mt_predict_settings *settings = &spill->settings;
    return estimate->verdict == MT_VERDICT_CANNOT && !settings->has_gpu_layers &&
           settings->n_devices && !settings->n_overrides && settings->split != MT_SPLIT_ROW &&
           !mt_fit_on_devices(&estimate->tally, &estimate->settings) &&
           mt_engine_has(spill->engine, "flag", "gpu_layers");
}

/* Several devices share whole layers, or whole tensors of experts: the engine expects half a one
 * more than the devices are many to go unused, an expert's tensor being a third of a layer. Its
 * plan without memory also counts four copies of the embedding too many on each later device. */
static uint64_t waste_of(const struct spill *spill, const struct mt_estimate *estimate)
{
    const struct mt_model_description *d = mt_model_describe(spill->model);
    const struct mt_predict_settings *settings = &estimate->settings;
    uint64_t weights_bytes = 0;
    uint64_t layers = settings->gpu_layers < d->n_layers ? settings->gpu_layers : d->n_layers;
    for (size_t i = 1; i < estimate->tally.n_places; i++) {
        const struct mt_tally_row *row =
            mt_tally_row_of(&estimate->tally.places[i], MT_CATEGORY_WEIGHTS);
        weights_bytes += row ? row->allocated_bytes : 0;
    }
    if (settings->n_devices < 2 || !layers)
        return 0;
    return (settings->n_devices + 1) * (weights_bytes / layers) / (d->experts ? 6 : 2) +
           (settings->n_devices - 1) * 4 * d->embedding_length * settings->ubatch * 4;
}

/* Whether the engine would look for a smaller context: it was left open, and there is less room
 * than it wants. */
static int may_shrink(struct spill *spill, const struct mt_estimate *estimate, uint64_t least)
{
    const struct mt_predict_settings *settings = &spill->settings;
    if (settings->context_tokens || settings->program != MT_PROGRAM_SERVER || !least ||
        estimate->settings.context_tokens <= least)
        return 0;
    if (!settings->n_devices &&
        (!settings->host_bytes || !mt_engine_has(spill->engine, "fit.host", "yes")))
        return 0;
    spill->margin_bytes = mt_engine_number(spill->engine, "fit.margin", 0);
    if (engine_has_room(spill, estimate))
        return 0;
    spill->waste_bytes = waste_of(spill, estimate);
    return 1;
}

/* A smaller context, with what the engine leaves free; at worst the smallest that it would take. */
static int shrink_context(struct spill *spill, struct mt_estimate **estimate)
{
    uint64_t least = mt_engine_number(spill->engine, "fit.context", 0);
    struct mt_estimate_why why = {
        .note =
            "No context was given: as the engine does, memtally takes the largest that leaves the "
            "margin free (--fit-target, 1 GiB). --max-context finds the largest that fits."};
    uint64_t steps;
    if (!may_shrink(spill, *estimate, least))
        return 0;
    spill->move = MOVE_CONTEXT;
    spill->context_tokens = (*estimate)->settings.context_tokens / CONTEXT_STEP * CONTEXT_STEP;
    spill->most = (spill->context_tokens - least) / CONTEXT_STEP;
    int found = find(spill, &steps);
    if (found == 0)
        why.note = "No context was given: as the engine does, memtally takes the smallest, because "
                   "no larger one leaves the margin free (--fit-target, 1 GiB).";
    return found < 0 ? found : replace(spill, steps, &why, estimate);
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

int mt_estimate_spill(const struct mt_engine *engine, const struct mt_model *model,
                      const struct mt_predict_settings *settings, struct mt_estimate **estimate,
                      struct mt_error *error)
{
    struct spill spill = {.model = model, .settings = *settings, .engine = engine, .error = error};
    const struct mt_model_description *d = mt_model_describe(model);
    int result = shrink_context(&spill, estimate);
    if (result < 0 || !may_leave(&spill, *estimate))
        return result;
    int found = 0;
    if (d->experts && !settings->cpu_moe_layers && mt_engine_has(spill.engine, "flag", "cpu_moe"))
        found = leave(&spill, MOVE_EXPERTS, d->n_layers, estimate);
    spill.settings.cpu_moe_layers = settings->cpu_moe_layers;
    if (found == 0) /* the output counts as a layer */
        found = leave(&spill, MOVE_LAYERS, d->n_layers - d->n_draft_layers + 1, estimate);
    return found < 0 ? found : 0;
}

uint64_t mt_fit_margin_bytes(const char *engine)
{
    struct mt_engine found;
    return mt_engine_find(engine, &found, NULL) < 0 ? 0 : mt_engine_number(&found, "fit.margin", 0);
}
