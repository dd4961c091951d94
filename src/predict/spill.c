/* SPDX-License-Identifier: MIT */
/* Fewer layers on the devices: how an engine runs a model that its devices have no room for, where
 * it does so by itself (ollama before 0.30); what llama-server does is in llama_fit.c. */
#include <inttypes.h>
#include <stdio.h>

#include "predict/fit.h"
#include "predict/sheet_parts.h"

#define REASON_BYTES 400

/* A search for the fewest layers that must lie on the host. */
struct spill {
    const struct mt_model *model;
    struct mt_predict_settings settings;
    uint64_t n_layers; /* that can leave; the output counts as one */
    struct mt_error *error;
};

static void set(struct spill *spill, uint64_t left)
{
    spill->settings.has_gpu_layers = 1;
    spill->settings.gpu_layers = spill->n_layers - left;
}

/* Whether the devices have room with `left` layers on the host. Returns 1, 0 or an error. */
static int has_room(struct spill *spill, uint64_t left)
{
    struct mt_estimate *estimate;
    set(spill, left);
    int result = mt_estimate_once(spill->model, &spill->settings, NULL, &estimate, spill->error);
    if (result < 0)
        return result;
    int room = mt_fit_on_devices(&estimate->tally, &estimate->settings);
    mt_estimate_destroy(estimate);
    return room;
}

/* The fewest layers that must leave. Returns 1 where that helps, 0 where it does not, or an error.
 */
static int find(struct spill *spill, uint64_t *left)
{
    uint64_t too_few = 0;
    uint64_t enough = spill->n_layers;
    int room = has_room(spill, enough);
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
    *left = enough;
    return room;
}

static int replace(struct spill *spill, uint64_t left, struct mt_estimate **estimate)
{
    char reason[REASON_BYTES];
    struct mt_estimate *better;
    snprintf(reason, sizeof reason,
             "%" PRIu64 " of %" PRIu64
             " layers and output lie on the host; with all on devices, %s",
             left, spill->n_layers, (*estimate)->reason ? (*estimate)->reason : "they do not fit");
    set(spill, left);
    int result = mt_estimate_once(spill->model, &spill->settings, reason, &better, spill->error);
    if (result < 0)
        return result;
    mt_estimate_destroy(*estimate);
    *estimate = better;
    return 0;
}

/* Settings that say themselves what goes where are left alone, as are engines that do not spill. */
static int may_spill(const struct mt_predict_settings *settings, const struct mt_estimate *estimate)
{
    struct mt_engine engine;
    if (estimate->verdict != MT_VERDICT_CANNOT || settings->has_gpu_layers ||
        !settings->n_devices || mt_fit_on_devices(&estimate->tally, &estimate->settings))
        return 0;
    return mt_engine_find(estimate->settings.engine, &engine, NULL) == 0 &&
           mt_engine_has(&engine, "flag.style", "ollama") && !mt_engine_has(&engine, "fit", "yes");
}

int mt_estimate_spill(const struct mt_model *model, const struct mt_predict_settings *settings,
                      struct mt_estimate **estimate, struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(model);
    struct spill spill = {.model = model,
                          .settings = *settings,
                          .n_layers = d->n_layers - d->n_draft_layers + 1,
                          .error = error};
    uint64_t left;
    if (!may_spill(settings, *estimate))
        return 0;
    int found = find(&spill, &left);
    return found > 0 ? replace(&spill, left, estimate) : found;
}
