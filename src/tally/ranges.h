/* SPDX-License-Identifier: MIT */
/* A map from address ranges to values: setting a range replaces what it covers.
 *
 * Ranges are half open and never overlap; neighbours are not joined. Every operation takes time in
 * the logarithm of the number of ranges, plus the ranges that it removes. */
#ifndef MT_TALLY_RANGES_H
#define MT_TALLY_RANGES_H

#include <stddef.h>
#include <stdint.h>

struct mt_ranges_node;

struct mt_ranges {
    struct mt_ranges_node *root;
    uint64_t random;
    size_t n;
    int failed; /* an allocation failed; the map is then incomplete */
};

struct mt_range {
    uint64_t low;
    uint64_t high;
    uint64_t value;
};

/* Whether ranges are in order and overlap nowhere, and `n` counts them. Takes time in n. */
int mt_ranges_are_valid(const struct mt_ranges *ranges);

void mt_ranges_init(struct mt_ranges *ranges);
void mt_ranges_finish(struct mt_ranges *ranges);

/* [low, high) has `value` from now on; an empty range is ignored. */
void mt_ranges_set(struct mt_ranges *ranges, uint64_t low, uint64_t high, uint64_t value);

/* [low, high) has no value from now on. */
void mt_ranges_clear(struct mt_ranges *ranges, uint64_t low, uint64_t high);

/* What [low, high) has is at `to` from now on, in place of what was there, and no more where it
 * was. The two places may not overlap, nor the new one go past the address space. However many
 * ranges move, it takes no longer than one. */
void mt_ranges_move(struct mt_ranges *ranges, uint64_t low, uint64_t high, uint64_t to);

/* The first range that ends above `address`. Returns 0 where there is none. */
int mt_ranges_at_or_after(const struct mt_ranges *ranges, uint64_t address, struct mt_range *range);

/* Whether `address` lies in a range, and which. */
int mt_ranges_find(const struct mt_ranges *ranges, uint64_t address, struct mt_range *range);

/* Whether `many` ranges or more lie in [low, high), at least in part. Takes time in `many`. */
int mt_ranges_are_many(const struct mt_ranges *ranges, uint64_t low, uint64_t high, size_t many);

#endif
