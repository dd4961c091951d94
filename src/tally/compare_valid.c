/* SPDX-License-Identifier: MIT */
/* What holds for every comparison. */
#include "tally/compare.h"

#include <math.h>

static int component_is_valid(const struct mt_component_difference *it)
{
    if (!it->a.known || !it->b.known)
        return it->verdict == MT_COMPARE_NOT_COMPARABLE && !it->ratio_known;
    double off = fabs((double)it->difference_bytes);
    double allowed = it->band_ratio * fabs((double)it->a.bytes);
    enum mt_compare_verdict verdict = off <= allowed             ? MT_COMPARE_WITHIN
                                      : it->difference_bytes > 0 ? MT_COMPARE_OVER
                                                                 : MT_COMPARE_UNDER;
    return it->difference_bytes == mt_compare_subtract(it->b.bytes, it->a.bytes) &&
           it->verdict == verdict && it->ratio_known == (it->a.bytes != 0) &&
           (!it->ratio_known || (it->accuracy_ratio >= 0 && it->accuracy_ratio <= 1));
}

/* A known difference is that of two known sizes. */
static int differences_are_valid(const struct mt_difference *differences, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct mt_difference *it = &differences[i];
        if (!it->in_a && !it->in_b)
            return 0;
        if (it->known && (it->a_bytes > INT64_MAX || it->b_bytes > INT64_MAX ||
                          it->difference_bytes != (int64_t)it->b_bytes - (int64_t)it->a_bytes))
            return 0;
    }
    return 1;
}

int mt_comparison_is_valid(const struct mt_comparison *comparison)
{
    int comparable = 0;
    int within = 0;
    for (int i = 0; i < MT_COMPONENT_COUNT; i++) {
        const struct mt_component_difference *it = &comparison->components[i];
        if (!component_is_valid(it))
            return 0;
        comparable += it->verdict != MT_COMPARE_NOT_COMPARABLE;
        within += it->verdict == MT_COMPARE_WITHIN;
    }
    for (size_t i = 0; i < comparison->n_places; i++)
        for (int c = 0; c < MT_COMPONENT_COUNT; c++)
            if (!component_is_valid(&comparison->places[i].components[c]))
                return 0;
    return comparison->all_within == (comparable > 0 && within == comparable) &&
           comparison->parts_accuracy_ratio <= 1 &&
           differences_are_valid(comparison->rows, comparison->n_rows) &&
           differences_are_valid(comparison->parts, comparison->n_parts);
}
