/* SPDX-License-Identifier: MIT */
/* A reserved range of addresses: its blocks in order, and the pages behind them.
 *
 * Nothing here calls the backend but to reserve the range. */
#ifndef MT_POOL_ARENA_H
#define MT_POOL_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/pool.h>

#include "pool/index.h"

/* Descriptors of blocks, made in slabs, so that those that a step may need can be had before. */
struct mt_pool_descriptors {
    struct mt_pool_block *unused; /* by `after` */
    size_t n_unused;
    struct mt_pool_slab *slabs;
};

/* Makes sure of n unused descriptors. Errors: MT_ENOMEM. */
int mt_pool_descriptors_ensure(struct mt_pool_descriptors *descriptors, size_t n);
/* One that was made sure of, zeroed. */
struct mt_pool_block *mt_pool_descriptor_take(struct mt_pool_descriptors *descriptors);
void mt_pool_descriptor_give(struct mt_pool_descriptors *descriptors, struct mt_pool_block *block);
void mt_pool_descriptors_finish(struct mt_pool_descriptors *descriptors);

/* A page of a pool that sleeps. */
struct mt_pool_slept {
    void *copy; /* what it had, on the host; NULL: it is lost */
    int was_attached;
};

/* Invariants: the blocks from `first` to `last` fill [base, base + top_bytes) without a gap;
 * pages[i] != 0 exactly for the pages below top_bytes that lie in no hole.
 * Where memory comes in segments, `pages` is NULL, and the blocks follow one another segment by
 * segment: only inside of one are they in order of address. */
struct mt_pool_arena {
    uint64_t base;
    uint64_t size_bytes;
    uint64_t top_bytes; /* a multiple of a page */
    uint64_t *pages;    /* the backend's page plus 1; 0 where none is attached */
    struct mt_pool_block *first, *last;
    uint8_t number;              /* of the pool's arenas */
    struct mt_pool_slept *slept; /* of each page below top_bytes while the pool sleeps, else NULL */
};

/* Cuts a block: what lies from `offset_bytes` on becomes a new block after it, of the same state,
 * in no list. Takes one descriptor. */
struct mt_pool_block *mt_pool_arena_cut(struct mt_pool_arena *arena,
                                        struct mt_pool_descriptors *descriptors,
                                        struct mt_pool_block *block, uint64_t offset_bytes);

/* Makes the block after `block` a part of it, and gives its descriptor back. */
void mt_pool_arena_join(struct mt_pool_arena *arena, struct mt_pool_descriptors *descriptors,
                        struct mt_pool_block *block);

/* A block at the top, of size_bytes. Takes one descriptor. */
struct mt_pool_block *mt_pool_arena_push(struct mt_pool_arena *arena,
                                         struct mt_pool_descriptors *descriptors,
                                         uint64_t size_bytes);

/* Takes a block out that is a whole segment. */
void mt_pool_arena_drop(struct mt_pool_arena *arena, struct mt_pool_descriptors *descriptors,
                        struct mt_pool_block *block);

/* Takes the last block off the top. */
void mt_pool_arena_pop(struct mt_pool_arena *arena, struct mt_pool_descriptors *descriptors);

/* Live blocks by address. */
struct mt_pool_table {
    struct mt_pool_block **chains;
    size_t n_chains; /* a power of two */
    size_t n_blocks;
};

int mt_pool_table_init(struct mt_pool_table *table);
void mt_pool_table_finish(struct mt_pool_table *table);
void mt_pool_table_insert(struct mt_pool_table *table, struct mt_pool_block *block);
struct mt_pool_block *mt_pool_table_find(const struct mt_pool_table *table, uint64_t address);
void mt_pool_table_remove(struct mt_pool_table *table, struct mt_pool_block *block);

#endif
