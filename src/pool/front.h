/* SPDX-License-Identifier: MIT */
/* What a thread has at hand: the block of up to 64 KiB and the larger one that it gave back last.
 * Taking them again needs no lock. Tables, with an entry for each 512 bytes of an arena, say how
 * large a block of stream 0 is that was handed out, so that giving one back looks at one place. */
#ifndef MT_POOL_FRONT_H
#define MT_POOL_FRONT_H

#include "pool/pool.h"

#define MT_POOL_CLASSES 129 /* sizes in units of MT_POOL_ALIGN; 0 is none */
#define MT_POOL_DEPTH   16
#define MT_POOL_SLOTS   8           /* pools that a thread keeps blocks of */
#define MT_POOL_KEPT    255u        /* in the table of small blocks: with a thread */
#define MT_POOL_AT_HAND 0x80000000u /* added in the table of large ones: with a thread */
#define MT_POOL_NO_KEY  UINT64_MAX

/* The owner alone writes, but that anyone with the pool's lock may take large_address. The counts
 * may be read by others. A key is a size in units of MT_POOL_ALIGN, less one. */
struct mt_pool_front {
    _Atomic uint64_t small_key; /* of the small block at hand, or MT_POOL_NO_KEY */
    uint64_t small_address;
    uint64_t large_key;             /* of the large block that was put at hand last */
    _Atomic uint64_t large_address; /* 0: none, or someone took it */
    _Atomic uint64_t n_taken, n_kept;
    _Atomic uint64_t bytes;            /* of the lists below */
    uint64_t flush;                    /* the pool's when it was last emptied for it */
    struct mt_pool_front *next;        /* of the pool's */
    struct mt_pool_front *next_unused; /* whose thread has ended */
    uint8_t n[MT_POOL_CLASSES];
    uint64_t addresses[MT_POOL_CLASSES][MT_POOL_DEPTH];
};

struct mt_pool_slot {
    uint64_t id; /* of a pool; 0 is none */
    struct mt_pool_front *front;
};

struct mt_pool_thread {
    struct mt_pool_slot last;
    struct mt_pool_slot slots[MT_POOL_SLOTS];
    unsigned n;
};

extern _Thread_local struct mt_pool_thread mt_pool_mine
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

static inline void mt_pool_count_up(_Atomic uint64_t *count)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* The small table's entry for an address; NULL where it has none. */
static inline _Atomic uint8_t *mt_pool_small_entry(const struct mt_pool *pool, uint64_t address)
{
    uint64_t offset = address - pool->arenas[MT_POOL_SMALL].base;
    uint64_t at = offset / MT_POOL_ALIGN;
    return offset % MT_POOL_ALIGN || at >= pool->n_classes ? NULL : &pool->classes[at];
}

/* The same of the large one. */
static inline _Atomic uint32_t *mt_pool_large_entry(const struct mt_pool *pool, uint64_t address)
{
    uint64_t offset = address - pool->arenas[MT_POOL_LARGE].base;
    uint64_t at = offset / MT_POOL_ALIGN;
    return offset % MT_POOL_ALIGN || at >= pool->n_sizes ? NULL : &pool->sizes[at];
}

/* 1 and the block at hand where it has the size for `bytes`, or 0. */
static inline int mt_pool_hand_take(struct mt_pool *pool, uint64_t bytes, uint64_t *address)
{
    struct mt_pool_front *front = mt_pool_mine.last.front;
    uint64_t key = (bytes - 1) / MT_POOL_ALIGN; /* no block has that of 0 bytes */
    if (mt_pool_mine.last.id != pool->id)
        return 0;
    if (atomic_load_explicit(&front->small_key, memory_order_relaxed) == key) {
        uint64_t small = front->small_address;
        atomic_store_explicit(&front->small_key, MT_POOL_NO_KEY, memory_order_relaxed);
        atomic_store_explicit(mt_pool_small_entry(pool, small), (uint8_t)(key + 1),
                              memory_order_relaxed);
        mt_pool_count_up(&front->n_taken);
        *address = small;
        return 1;
    }
    if (front->large_key != key)
        return 0;
    uint64_t large = atomic_exchange_explicit(&front->large_address, 0, memory_order_acq_rel);
    front->large_key = MT_POOL_NO_KEY;
    if (!large)
        return 0;
    atomic_store_explicit(mt_pool_large_entry(pool, large), (uint32_t)(key + 1),
                          memory_order_relaxed);
    mt_pool_count_up(&front->n_taken);
    *address = large;
    return 1;
}

/* 1 where the calling thread has the block at hand now, or 0. */
static inline int mt_pool_hand_keep(struct mt_pool *pool, uint64_t address)
{
    struct mt_pool_front *front = mt_pool_mine.last.front;
    _Atomic uint8_t *small = mt_pool_small_entry(pool, address);
    if (mt_pool_mine.last.id != pool->id)
        return 0;
    if (small) {
        unsigned class = atomic_load_explicit(small, memory_order_relaxed);
        if (!class || class == MT_POOL_KEPT ||
            atomic_load_explicit(&front->small_key, memory_order_relaxed) != MT_POOL_NO_KEY)
            return 0;
        front->small_address = address;
        atomic_store_explicit(&front->small_key, class - 1, memory_order_relaxed);
        atomic_store_explicit(small, (uint8_t)MT_POOL_KEPT, memory_order_relaxed);
        mt_pool_count_up(&front->n_kept);
        return 1;
    }
    _Atomic uint32_t *large = mt_pool_large_entry(pool, address);
    uint32_t units = large ? atomic_load_explicit(large, memory_order_relaxed) : 0;
    if (!units || units & MT_POOL_AT_HAND ||
        atomic_load_explicit(&front->large_address, memory_order_relaxed))
        return 0;
    atomic_store_explicit(large, units | MT_POOL_AT_HAND, memory_order_relaxed);
    front->large_key = units - 1;
    mt_pool_count_up(&front->n_kept);
    atomic_store_explicit(&front->large_address, address, memory_order_release);
    return 1;
}

#endif
