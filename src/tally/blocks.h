/* SPDX-License-Identifier: MIT */
/* The heap blocks that are alive, by address: a compact hash table for many millions.
 *
 * The table is divided into parts that grow one at a time, so that growing never needs the room of
 * the whole once more. */
#ifndef MT_TALLY_BLOCKS_H
#define MT_TALLY_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#define MT_BLOCKS_PARTS 256

struct mt_heap_block {
    uint64_t address; /* not UINT64_MAX */
    uint64_t size;
    uint32_t site; /* who allocated it; see mt_replay_site() */
    uint32_t born; /* of two that overlap the one born later holds */
};

struct mt_blocks_part {
    struct mt_heap_block *slots; /* address UINT64_MAX: empty */
    uint32_t capacity;
    uint32_t n;
};

/* Start from {0}. */
struct mt_blocks {
    struct mt_blocks_part parts[MT_BLOCKS_PARTS];
    size_t n;
};

void mt_blocks_finish(struct mt_blocks *blocks);

/* Has the memory fetched that a call for `address` will want soon. */
void mt_blocks_expect(const struct mt_blocks *blocks, uint64_t address);

/* Puts a block in, in place of one at its address. Returns 0 or MT_ENOMEM (then nothing has
 * changed). */
int mt_blocks_put(struct mt_blocks *blocks, const struct mt_heap_block *block);

/* The block at `address` until the next call that changes something, NULL where there is none. */
const struct mt_heap_block *mt_blocks_get(const struct mt_blocks *blocks, uint64_t address);

/* Takes the block at `address` out. Returns whether it was there; *size is its size. */
int mt_blocks_take(struct mt_blocks *blocks, uint64_t address, uint64_t *size);

/* Steps through all blocks in no order; *at begins at 0. Returns NULL behind the last. */
const struct mt_heap_block *mt_blocks_next(const struct mt_blocks *blocks, uint64_t *at);

#endif
