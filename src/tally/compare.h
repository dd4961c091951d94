/* SPDX-License-Identifier: MIT */
/* What the files of the comparison hand each other. */
#ifndef MT_TALLY_COMPARE_H
#define MT_TALLY_COMPARE_H

#include <memtally/compare.h>

#include "base/arena.h"

/* A comparison while it is made. */
struct mt_comparing {
    struct mt_comparison comparison; /* first: the caller's pointer */
    struct mt_arena arena;
    const struct mt_compare_side *a;
    const struct mt_compare_side *b;
    const struct mt_compare_settings *settings;
};

/* A sum that stays at the ends of its range where it would leave it. */
int64_t mt_compare_add(int64_t a, int64_t b);
int64_t mt_compare_subtract(int64_t a, int64_t b);

/* What a row counts as on a basis, and a part of a row of `category`; MT_UNKNOWN where neither is
 * known. */
uint64_t mt_compare_bytes(enum mt_category category, enum mt_tally_kind kind, enum mt_basis basis,
                          uint64_t allocated_bytes, uint64_t resident_bytes);
uint64_t mt_compare_row_bytes(const struct mt_tally_row *row, enum mt_tally_kind kind,
                              enum mt_basis basis);

/* Fills in rows and parts of a comparison of two tallies. Returns 0 or MT_ENOMEM. */
int mt_compare_rows(struct mt_comparing *comparing);

/* The place of B that stands for `place` of A, or NULL. */
const struct mt_tally_place *mt_compare_partner(const struct mt_tally *a, const struct mt_tally *b,
                                                const struct mt_tally_place *place);

/* Whether differences and verdicts are those of the sizes beside them. */
int mt_comparison_is_valid(const struct mt_comparison *comparison);

/* Fills in the advice. Returns 0 or MT_ENOMEM. */
int mt_compare_advise(struct mt_comparing *comparing);

#endif
