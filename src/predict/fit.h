/* SPDX-License-Identifier: MIT */
/* The verdict: an estimate held against capacities. */
#ifndef MT_PREDICT_FIT_H
#define MT_PREDICT_FIT_H

#include <memtally/predict.h>

/* `spills` and `cannot` are the predictor's own reasons or NULL. Writes one sentence with numbers
 * into `reason`; leaves it empty where the verdict is unknown. */
enum mt_verdict mt_fit_verdict(const struct mt_tally *tally,
                               const struct mt_predict_settings *settings, const char *spills,
                               const char *cannot, char *reason, size_t size);

#endif
