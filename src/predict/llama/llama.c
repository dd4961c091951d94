/* SPDX-License-Identifier: MIT */
/* The predictor of llama.cpp, ik_llama.cpp and ollama: one set of rules, whose differences lie in
 * the engines' tables. */
#include <inttypes.h>

#include <memtally/settings.h>

#include "internal.h"
#include "predict/sheet.h"

static int write_parts(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                       struct mt_error *error)
{
    int (*const parts[])(const struct mt_llama_plan *, struct mt_sheet *,
                         struct mt_error *) = {mt_llama_weights, mt_llama_latent_weights,
                                               mt_llama_cache, mt_llama_compute, mt_llama_residue};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int result = parts[i](plan, sheet, error);
        if (result < 0)
            return result;
    }
    return 0;
}

static void write_notes(const struct mt_llama_plan *plan, struct mt_sheet *sheet)
{
    uint64_t trained = plan->in->d->context_length;
    if (trained && plan->cells > mt_llama_padded(trained, 256))
        mt_sheet_note(sheet,
                      "The context of a sequence, %" PRIu64 " tokens, is more than the %" PRIu64
                      " that the model was trained for.",
                      plan->cells, trained);
    if (plan->in->settings->draft_tokens && !plan->in->d->n_draft_layers)
        mt_sheet_note(sheet, "memtally counts rows of output for drafted tokens, but no separate "
                             "draft model: estimate that by itself.");
    if (plan->in->settings->split == MT_SPLIT_ROW)
        mt_sheet_note(sheet, "Rows of matrices are split in steps of 128; a device's own step may "
                             "be smaller.");
}

static int predict(const struct mt_predict_input *input, struct mt_sheet *sheet,
                   struct mt_error *error)
{
    struct mt_llama_plan plan;
    int result = mt_llama_plan_init(&plan, input, error);
    if (result < 0)
        return result;
    result = write_parts(&plan, sheet, error);
    if (result == 0) {
        write_notes(&plan, sheet);
        mt_llama_flags(&plan, sheet);
    }
    mt_llama_plan_finish(&plan);
    return result;
}

static int predict_unplanned(const struct mt_predict_input *input, struct mt_sheet *sheet,
                             struct mt_error *error)
{
    struct mt_llama_plan plan;
    if (!input->model) {
        mt_llama_residue_alone(input, sheet);
        return 0;
    }
    int result = mt_llama_plan_init(&plan, input, error);
    if (result < 0)
        return result;
    result = mt_llama_residue(&plan, sheet, error);
    if (result == 0)
        mt_llama_flags(&plan, sheet);
    mt_llama_plan_finish(&plan);
    return result;
}

const struct mt_predictor mt_predict_llama_cpp = {"llama.cpp", mt_llama_complete, predict,
                                                  predict_unplanned};
