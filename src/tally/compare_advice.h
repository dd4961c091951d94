/* SPDX-License-Identifier: MIT */
/* Guesses at why a figure differs: each explains a factor or a difference, and the one that fits is
 * said. */
#ifndef MT_TALLY_COMPARE_ADVICE_H
#define MT_TALLY_COMPARE_ADVICE_H

#include "tally/compare.h"

#define MT_ADVICE_MAX 16

/* What the advisers look at, and write to. `d` is NULL where the model is not known. */
struct mt_advising {
    struct mt_comparing *comparing;
    const struct mt_component_difference *of;
    const struct mt_model_description *d;
    struct mt_advice advice[MT_ADVICE_MAX];
    size_t n;
    int failed;
};

/* Writes a piece of advice; past MT_ADVICE_MAX nothing. */
void mt_advise(struct mt_advising *advising, enum mt_component component, const char *reason,
               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Whether `value` is `target`, give or take a share of it. */
int mt_advise_near(double value, double target, double tolerance);

/* B's figure as a multiple of A's; 0 where it is none or unknown. */
double mt_advise_factor(const struct mt_advising *advising, enum mt_component component);

/* Whether a component lies outside its band. */
int mt_advise_is_out(const struct mt_advising *advising, enum mt_component component);

/* Whether one side is what a calculator or another profiler gave. Only then can a formula be at
 * fault that somebody else wrote: a tally of our own needs no lesson in how to count. */
int mt_advise_is_foreign(const struct mt_advising *advising);

void mt_advise_kv_cache(struct mt_advising *advising);
void mt_advise_weights(struct mt_advising *advising);
void mt_advise_activations(struct mt_advising *advising);
void mt_advise_overhead(struct mt_advising *advising);

#endif
