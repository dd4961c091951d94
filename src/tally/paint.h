/* SPDX-License-Identifier: MIT */
/* The address space, painted with claims: ranges below the heap blocks, the blocks, ranges above
 * them. Blocks may be many millions, so that they are not ranges but a sorted list of addresses. */
#ifndef MT_TALLY_PAINT_H
#define MT_TALLY_PAINT_H

#include "tally/maps.h"
#include "tally/ranges.h"
#include "tally/replay.h"

struct mt_layer {
    struct mt_ranges ranges; /* -> claim */
    struct mt_range next;    /* the first that ends above `from` */
    uint64_t from;
    enum { MT_NEXT_UNKNOWN, MT_NEXT_KNOWN, MT_NEXT_NONE } looked; /* whether `next` is known */
};

struct mt_paint {
    const struct mt_maps *maps;
    struct mt_layer below;
    struct mt_layer overlapping; /* blocks that overlap others */
    struct mt_layer above;
    const struct mt_blocks *blocks;
    uint64_t *addresses; /* of the blocks that overlap no other, sorted */
    size_t n_addresses;
    size_t near; /* where the last one was found */
    struct mt_range block;
    size_t plain_claim;     /* of blocks in no scope */
    uint32_t *stack_claims; /* the same by the number of their stack; NULL: all are plain */
    uint32_t *claims;       /* of the others, by the number of their site */
};

void mt_paint_init(struct mt_paint *paint, const struct mt_maps *maps);
void mt_paint_finish(struct mt_paint *paint);

/* Paints a range of a layer. Returns 0 or MT_ENOMEM. */
int mt_paint_put(struct mt_layer *layer, uint64_t low, uint64_t high, size_t claim);

/* Paints the blocks; of two that overlap the one born later holds. The claims come first. They must
 * stay as they are. Returns 0 or MT_ENOMEM. */
int mt_paint_blocks(struct mt_paint *paint, const struct mt_blocks *blocks);

/* The claim of a block by itself, by who allocated it. */
size_t mt_paint_claim_of(const struct mt_paint *paint, const struct mt_heap_block *block);

/* The first painted piece that ends above `address`, from there on: the strongest claim at its
 * beginning, as far as that holds. Returns 0 where there is none. Quick where addresses rise. */
int mt_paint_at_or_after(struct mt_paint *paint, uint64_t address, struct mt_range *piece);

#endif
