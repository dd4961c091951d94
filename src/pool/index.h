/* SPDX-License-Identifier: MIT */
/* Free blocks by size: two levels of bitmaps over lists of blocks (TLSF), the smallest of a list
 * first looked for among few. Constant time. */
#ifndef MT_POOL_INDEX_H
#define MT_POOL_INDEX_H

#include <stdint.h>

#define MT_POOL_ALIGN_BITS 9
#define MT_POOL_ALIGN      (1u << MT_POOL_ALIGN_BITS)

/* What a block is. The order of addresses is kept over all of them. */
enum mt_pool_state {
    MT_POOL_LIVE,    /* handed out, or with a thread's front */
    MT_POOL_FREE,    /* in the index of its stream */
    MT_POOL_PENDING, /* given back; other streams may still use it */
    MT_POOL_HOLE     /* addresses without memory: whole pages */
};

/* A run of addresses of one arena. Invariants: size_bytes > 0; next->address == address +
 * size_bytes; two neighbours that are free for the same stream do not exist, nor two holes. */
struct mt_pool_block {
    uint64_t address;
    uint64_t size_bytes;
    struct mt_pool_block *previous, *next; /* by address */
    struct mt_pool_block *before, *after;  /* in its list: of the index, of pending blocks */
    struct mt_pool_block *chain;           /* of the table of live blocks */
    uint64_t stream;                       /* 0: of no stream, or all its work is done */
    uint64_t freed_tick;                   /* when its youngest part was given back; see pool.h */
    uint64_t batch;                        /* of its stream, when it was given back */
    struct mt_pool_uses *uses;             /* other streams, NULL where none */
    uint8_t state;
    uint8_t arena;          /* which of the pool's */
    uint8_t begins_segment; /* it joins nothing before it; see the backend's `take` */
};

#define MT_POOL_LEVELS 40 /* powers of two from MT_POOL_ALIGN on */
#define MT_POOL_PARTS  32 /* of each */

struct mt_pool_index {
    uint64_t levels;                /* bit l: parts[l] != 0 */
    uint32_t parts[MT_POOL_LEVELS]; /* bit p: lists[l][p] != NULL */
    struct mt_pool_block *lists[MT_POOL_LEVELS][MT_POOL_PARTS];
};

void mt_pool_index_insert(struct mt_pool_index *index, struct mt_pool_block *block);
void mt_pool_index_remove(struct mt_pool_index *index, struct mt_pool_block *block);

/* A block of at least so many bytes, of which few are smaller; NULL where there is none. It stays
 * in the index. */
struct mt_pool_block *mt_pool_index_find(const struct mt_pool_index *index, uint64_t bytes);

/* The first block of the list of the largest ones; NULL where the index is empty. */
struct mt_pool_block *mt_pool_index_largest(const struct mt_pool_index *index);

#endif
