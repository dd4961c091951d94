/* SPDX-License-Identifier: MIT */
/* What holds for every sheet and every estimate made of one. */
#include <memtally/units.h>

#include "predict/sheet.h"
#include "predict/sums.h"
#include "sheet_internal.h"

static int term_is_valid(const struct mt_sheet_line *line)
{
    const struct mt_estimate_term *term = &line->term;
    return line->place >= MT_HOST_PLACE && term->category > MT_CATEGORY_NONE &&
           term->category < MT_CATEGORY_END && term->name && term->rule && term->formula &&
           term->low_bytes <= term->high_bytes && term->kind > MT_TERM_NONE &&
           term->kind < MT_TERM_COUNT && (unsigned)term->provenance < MT_PROVENANCE_COUNT;
}

int mt_pool_is_valid(const struct mt_estimate_pool *pool)
{
    if (!pool->present)
        return 1;
    uint64_t taken = pool->weights_bytes + pool->activations_bytes + pool->other_bytes;
    int is_far = mt_add(taken, pool->graphs_bytes) == MT_FAR; /* sums go no further */
    int64_t left = (int64_t)(pool->requested_bytes - taken - pool->graphs_bytes);
    return (is_far || pool->pool_bytes == left) && pool->pool_tokens_low <= pool->pool_tokens_high;
}

int mt_sheet_is_valid(const struct mt_sheet *sheet)
{
    for (size_t i = 0; i < sheet->n_terms; i++)
        if (!term_is_valid(&sheet->terms[i]))
            return 0;
    for (size_t i = 0; i < sheet->n_bounds; i++)
        if (sheet->bounds[i].low_bytes > sheet->bounds[i].high_bytes)
            return 0;
    return mt_pool_is_valid(&sheet->pool);
}

int mt_estimate_is_valid(const struct mt_estimate *estimate)
{
    const struct mt_tally *tally = &estimate->tally;
    uint64_t terms = 0;
    uint64_t places = 0;
    for (size_t i = 0; i < estimate->n_terms; i++)
        terms += estimate->terms[i].bytes;
    for (size_t i = 0; i < tally->n_places; i++)
        if (tally->places[i].total_allocated_bytes != MT_UNKNOWN)
            places += tally->places[i].total_allocated_bytes;
    return terms == places && mt_tally_adds_up(tally) && estimate->verdict < MT_VERDICT_COUNT &&
           estimate->accuracy_ratio >= 0;
}
