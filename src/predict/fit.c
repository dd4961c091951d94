/* SPDX-License-Identifier: MIT */
/* The verdict: an estimate held against capacities. */
#include "predict/fit.h"

enum mt_verdict mt_fit_verdict(const struct mt_tally *tally,
                               const struct mt_predict_settings *settings, const char *spills,
                               const char *cannot, char *reason, size_t size)
{
    (void)tally;
    (void)settings;
    (void)spills;
    (void)cannot;
    if (size)
        *reason = 0;
    return MT_VERDICT_UNKNOWN;
}
