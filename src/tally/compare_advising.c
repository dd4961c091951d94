/* SPDX-License-Identifier: MIT */
/* What every adviser on a comparison asks and writes. */
#include <math.h>
#include <stdarg.h>

#include "tally/compare_advice.h"

void mt_advise(struct mt_advising *advising, enum mt_component component, const char *reason,
               const char *format, ...)
{
    va_list arguments;
    if (advising->n == MT_ADVICE_MAX)
        return;
    va_start(arguments, format);
    char *text = mt_arena_vprintf(&advising->comparing->arena, format, arguments);
    va_end(arguments);
    advising->failed |= !text;
    advising->advice[advising->n++] = (struct mt_advice){component, reason, text};
}

int mt_advise_near(double value, double target, double tolerance)
{
    return fabs(value - target) <= tolerance * fabs(target);
}

double mt_advise_factor(const struct mt_advising *advising, enum mt_component component)
{
    const struct mt_component_difference *difference = &advising->of[component];
    if (!difference->ratio_known || difference->a.bytes <= 0 || difference->b.bytes <= 0)
        return 0;
    return (double)difference->b.bytes / (double)difference->a.bytes;
}

int mt_advise_is_out(const struct mt_advising *advising, enum mt_component component)
{
    enum mt_compare_verdict verdict = advising->of[component].verdict;
    return verdict == MT_COMPARE_OVER || verdict == MT_COMPARE_UNDER;
}

int mt_advise_is_foreign(const struct mt_advising *advising)
{
    const struct mt_comparing *comparing = advising->comparing;
    return comparing->a->kind == MT_SIDE_FIGURES || comparing->b->kind == MT_SIDE_FIGURES;
}
