/* SPDX-License-Identifier: MIT */
/* Whether a model can do anything with drafted tokens. Knows no engine. */
#include <memtally/settings.h>

#include "base/error.h"
#include "predict/input.h"

/* Recurrent layers keep a state for each drafted token, whoever drafts it. */
static int keeps_states(const struct mt_model_description *d)
{
    for (uint64_t i = 0; i < d->n_layers; i++)
        if (d->layers[i].recurrence != MT_RECURRENCE_NONE)
            return 1;
    return 0;
}

int mt_refuse_drafting(const struct mt_model_description *d,
                       const struct mt_predict_settings *settings, struct mt_error *error)
{
    if (!settings->draft_tokens || d->n_draft_layers || keeps_states(d))
        return 0;
    return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                   "--draft-tokens: the model has neither layers that draft nor recurrent states, "
                   "so leave it out; estimate a draft model by itself");
}
