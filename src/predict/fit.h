/* SPDX-License-Identifier: MIT */
/* The verdict: an estimate held against capacities. */
#ifndef MT_PREDICT_FIT_H
#define MT_PREDICT_FIT_H

#include <memtally/predict.h>

/* The verdict of a tally. A place that has no capacity is not looked at. Of each other place the
 * band is held against its capacity less what other processes use there:
 *   high fits                                                   FITS
 *   low fits                                                    TIGHT
 *   low fits without the weights that are mapped on the host    PAGES
 *   else                                                        CANNOT
 * The worst place decides, the worst word being the last of FITS, TIGHT, SPILLS, PAGES, CANNOT.
 * `cannot` is CANNOT whatever the places say, `spills` makes SPILLS of FITS and TIGHT, also where
 * no capacity is known; both are the predictor's own reasons or NULL. Writes one sentence with
 * numbers into `reason`, which is at least 1 byte; leaves it empty where the verdict is unknown. */
enum mt_verdict mt_fit_verdict(const struct mt_tally *tally,
                               const struct mt_predict_settings *settings, const char *spills,
                               const char *cannot, char *reason, size_t size);

/* The verdict again, where the engine takes a budget: TIGHT instead of FITS where the pool, at its
 * low end or altogether, holds less than one sequence of the whole context. */
enum mt_verdict mt_fit_pool(const struct mt_estimate_pool *pool, uint64_t context_tokens,
                            enum mt_verdict verdict, char *reason, size_t size);

/* Whether every device has room for the high end of what lies there. */
int mt_fit_on_devices(const struct mt_tally *tally, const struct mt_predict_settings *settings);

/* Whether a part of the host's weights is mapped from a file, so that the kernel may drop it and
 * read it again: the last word of its rule is "mapped" ("llama.cpp/weights.mapped"). */
int mt_fit_is_mapped(const struct mt_tally_detail *detail);

#endif
