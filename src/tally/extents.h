/* SPDX-License-Identifier: MIT */
/* Lists of pieces of an address space, in the order of addresses, with a little arithmetic. */
#ifndef MT_TALLY_EXTENTS_H
#define MT_TALLY_EXTENTS_H

#include "tally/ranges.h"

struct mt_extent {
    uint64_t low;
    uint64_t high;
};

struct mt_extents {
    struct mt_extent *items;
    size_t n;
    size_t capacity;
    int failed; /* memory ran out; the list is then incomplete */
};

void mt_extents_finish(struct mt_extents *extents);
/* Pieces are added in the order of their addresses; one that meets the last becomes part of it, so
 * that equal memory is one list of pieces, however it came to be. */
void mt_extents_add(struct mt_extents *extents, uint64_t low, uint64_t high);
uint64_t mt_extents_bytes(const struct mt_extents *extents);

/* What of `extents` lies in `ranges`, and what does not. */
void mt_extents_keep(struct mt_extents *extents, const struct mt_ranges *ranges);
void mt_extents_drop(struct mt_extents *extents, const struct mt_ranges *ranges);

/* Keeps `bytes` of them, whole pages: of each about the same share, from its lower end. */
void mt_extents_share(struct mt_extents *extents, uint64_t bytes, uint64_t page_bytes);

/* Keeps the last `bytes` of them. */
void mt_extents_last(struct mt_extents *extents, uint64_t bytes);

#endif
