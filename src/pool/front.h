/* SPDX-License-Identifier: MIT */
/* What a thread keeps: blocks up to 64 KiB that it gave back, by exact size, and the last few
 * larger ones. The youngest of the small ones has a place of its own, ahead of the others of its
 * size: a thread that takes and gives back one block again and again then waits for no count that
 * it wrote itself a moment ago. Taking them again needs no lock. Tables, with an entry for each 512
 * bytes of an arena, say how large a block of stream 0 is that was handed out, so that giving one
 * back looks at one place. */
#ifndef MT_POOL_FRONT_H
#define MT_POOL_FRONT_H

#include "pool/pool.h"

#define MT_POOL_CLASSES 128 /* by key: a size in units of MT_POOL_ALIGN, less one */
#define MT_POOL_DEPTH   16u
#define MT_POOL_SLOTS   8                   /* pools that a thread keeps blocks of */
#define MT_POOL_MOST    ((uint64_t)1 << 20) /* bytes of small blocks that a thread keeps */
#define MT_POOL_KEPT    255u                /* in the table of small blocks: with a thread */
#define MT_POOL_WITH    0x80000000u         /* added in the table of large ones: with a thread */
#define MT_POOL_FEW     16u                 /* large blocks that a thread keeps */

/* The owner alone writes, but that anyone with the pool's lock may take a large address. The counts
 * and the youngest's size may be read by others. Invariants: n[i] <= room[i] <= MT_POOL_DEPTH;
 * granted_bytes is the sum of what the rooms are for, and no more than MT_POOL_MOST. */
struct mt_pool_front {
    _Atomic uint64_t n_taken, n_kept;
    _Atomic uint64_t youngest_units; /* size in MT_POOL_ALIGN; 0: there is none */
    uint64_t youngest;               /* its address */
    unsigned n_large;                /* of the two below; the youngest is the last */
    uint64_t large_keys[MT_POOL_FEW];
    _Atomic uint64_t large_addresses[MT_POOL_FEW]; /* 0: someone took it */
    uint64_t flush;                                /* the pool's when it was last emptied for it */
    uint64_t n_missed;                 /* requests that it could not serve from what it keeps */
    uint64_t n_asked_before;           /* taken and missed, when transfer.c last looked */
    uint64_t n_kept_before;            /* and kept, when that last changed */
    struct mt_pool_front *next;        /* of the pool's */
    struct mt_pool_front *next_unused; /* whose thread has ended */
    uint64_t granted_bytes;
    uint8_t giving[MT_POOL_CLASSES + 1]; /* places in transfer.c */
    uint8_t taking[MT_POOL_CLASSES + 1];
    uint8_t room[MT_POOL_CLASSES];
    _Atomic uint8_t n[MT_POOL_CLASSES];
    uint64_t addresses[MT_POOL_CLASSES][MT_POOL_DEPTH];
};

/* What is so in the hot path is what the code falls into: a jump costs as much as all else. */
#define RARELY(condition) __builtin_expect(!!(condition), 0)

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

static inline uint64_t mt_pool_read(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

/* For the owner, who alone writes. */
static inline void mt_pool_add(_Atomic uint64_t *value, uint64_t more)
{
    atomic_store_explicit(value, mt_pool_read(value) + more, memory_order_relaxed);
}

/* Which entry of an arena's table is an address's: no table is so long where it is no multiple of
 * MT_POOL_ALIGN, or lies outside. */
static inline uint64_t mt_pool_place(const struct mt_pool_arena *arena, uint64_t address)
{
    uint64_t offset = address - arena->base;
    return offset >> MT_POOL_ALIGN_BITS | offset << (64 - MT_POOL_ALIGN_BITS);
}

/* The small table's entry for an address; NULL where it has none. */
static inline _Atomic uint8_t *mt_pool_small_entry(const struct mt_pool *pool, uint64_t address)
{
    uint64_t at = mt_pool_place(&pool->arenas[MT_POOL_SMALL], address);
    return at < pool->n_classes ? &pool->classes[at] : NULL;
}

/* The same of the large one. */
static inline _Atomic uint32_t *mt_pool_large_entry(const struct mt_pool *pool, uint64_t address)
{
    uint64_t at = mt_pool_place(&pool->arenas[MT_POOL_LARGE], address);
    return at < pool->n_sizes ? &pool->sizes[at] : NULL;
}

/* What the calling thread keeps of a pool; NULL where its last request was of another. */
static inline struct mt_pool_front *mt_pool_front_last(const struct mt_pool *pool)
{
    return mt_pool_mine.last.id == mt_pool_read(&pool->front_id) ? mt_pool_mine.last.front : NULL;
}

/* The address of a large block that the calling thread keeps no longer; 0 where someone took it. */
static inline uint64_t mt_pool_front_remove(struct mt_pool_front *front, unsigned i)
{
    uint64_t large = atomic_exchange_explicit(&front->large_addresses[i], 0, memory_order_acq_rel);
    unsigned last = --front->n_large;
    if (i != last) {
        front->large_keys[i] = front->large_keys[last];
        atomic_store_explicit(
            &front->large_addresses[i],
            atomic_exchange_explicit(&front->large_addresses[last], 0, memory_order_acq_rel),
            memory_order_release);
    }
    return large;
}

/* 1 and a large block for `bytes` that the calling thread keeps, or 0. Anyone with the pool's lock
 * may take one meanwhile. */
static inline int mt_pool_front_pop_large(struct mt_pool *pool, uint64_t bytes, uint64_t *address)
{
    struct mt_pool_front *front = mt_pool_front_last(pool);
    uint64_t key = (bytes - 1) / MT_POOL_ALIGN;
    for (unsigned i = front ? front->n_large : 0; i-- > 0;) {
        if (front->large_keys[i] != key)
            continue;
        uint64_t large = mt_pool_front_remove(front, i);
        if (!large)
            continue;
        atomic_store_explicit(&pool->sizes[mt_pool_place(&pool->arenas[MT_POOL_LARGE], large)],
                              (uint32_t)(key + 1), memory_order_relaxed);
        mt_pool_add(&front->n_taken, 1);
        *address = large;
        return 1;
    }
    return 0;
}

/* 1 and a small block of the size for `bytes` that the calling thread keeps, or 0. */
static inline int mt_pool_front_pop_small(struct mt_pool *pool, uint64_t bytes, uint64_t *address)
{
    struct mt_pool_front *front = mt_pool_mine.last.front;
    uint64_t units = (bytes - 1) / MT_POOL_ALIGN + 1; /* no block has that of 0 bytes */
    if (RARELY(mt_pool_mine.last.id != mt_pool_read(&pool->front_id)))
        return 0;
    uint64_t small = front->youngest;
    if (!RARELY(mt_pool_read(&front->youngest_units) != units)) {
        atomic_store_explicit(&front->youngest_units, 0, memory_order_relaxed);
    } else {
        uint64_t key = units - 1;
        unsigned n =
            key < MT_POOL_CLASSES ? atomic_load_explicit(&front->n[key], memory_order_relaxed) : 0;
        if (!n)
            return 0;
        small = front->addresses[key][n - 1];
        atomic_store_explicit(&front->n[key], (uint8_t)(n - 1), memory_order_relaxed);
    }
    *address = small;
    atomic_store_explicit(&pool->classes[mt_pool_place(&pool->arenas[MT_POOL_SMALL], small)],
                          (uint8_t)units, memory_order_relaxed);
    mt_pool_add(&front->n_taken, 1);
    return 1;
}

static inline int mt_pool_front_push_large(struct mt_pool *pool, uint64_t address)
{
    struct mt_pool_front *front = mt_pool_front_last(pool);
    uint64_t at = mt_pool_place(&pool->arenas[MT_POOL_LARGE], address);
    if (!front || at >= pool->n_sizes || front->n_large == MT_POOL_FEW)
        return 0;
    uint32_t units = atomic_load_explicit(&pool->sizes[at], memory_order_relaxed);
    if (!units || units & MT_POOL_WITH)
        return 0;
    atomic_store_explicit(&pool->sizes[at], units | MT_POOL_WITH, memory_order_relaxed);
    front->large_keys[front->n_large] = units - 1;
    mt_pool_add(&front->n_kept, 1);
    atomic_store_explicit(&front->large_addresses[front->n_large++], address, memory_order_release);
    return 1;
}

/* Puts the youngest among the others of its size. 0 where there is no room for it. */
static inline int mt_pool_front_age(struct mt_pool_front *front)
{
    uint64_t units = mt_pool_read(&front->youngest_units);
    if (!RARELY(units))
        return 1;
    unsigned n = atomic_load_explicit(&front->n[units - 1], memory_order_relaxed);
    if (n >= front->room[units - 1])
        return 0;
    front->addresses[units - 1][n] = front->youngest;
    atomic_store_explicit(&front->n[units - 1], (uint8_t)(n + 1), memory_order_relaxed);
    return 1;
}

/* 1 where the calling thread keeps the small block now, or 0. */
static inline int mt_pool_front_push_small(struct mt_pool *pool, uint64_t address)
{
    struct mt_pool_front *front = mt_pool_mine.last.front;
    uint64_t at = mt_pool_place(&pool->arenas[MT_POOL_SMALL], address);
    if (RARELY(mt_pool_mine.last.id != mt_pool_read(&pool->front_id) || at >= pool->n_classes))
        return 0;
    _Atomic uint8_t *entry = &pool->classes[at];
    unsigned units = atomic_load_explicit(entry, memory_order_relaxed);
    if (RARELY(!units || units == MT_POOL_KEPT || !mt_pool_front_age(front)))
        return 0;
    front->youngest = address;
    atomic_store_explicit(&front->youngest_units, units, memory_order_relaxed);
    atomic_store_explicit(entry, (uint8_t)MT_POOL_KEPT, memory_order_relaxed);
    mt_pool_add(&front->n_kept, 1);
    return 1;
}

/* front.c, with the lock: makes room for `want` blocks of a class, or for as many as the thread may
 * keep yet. */
void mt_pool_front_grant(struct mt_pool *pool, struct mt_pool_front *front, unsigned key,
                         unsigned want);

/* transfer.c, without the lock but the last three */

/* 1 where a lot of a class went from a thread that only gives back. */
int mt_pool_transfer_give(struct mt_pool *pool, struct mt_pool_front *front, unsigned key);
/* The same of the size of the youngest large block. */
int mt_pool_transfer_give_large(struct mt_pool *pool, struct mt_pool_front *front);
/* 1 where a block of the key may be there. */
int mt_pool_transfer_has(struct mt_pool *pool, uint64_t key);
/* Moves some blocks of the key to the calling thread's front. */
void mt_pool_transfer_take(struct mt_pool *pool, struct mt_pool_front *front, uint64_t key);
void mt_pool_transfer_finish(struct mt_pool *pool);
/* Gives all of them back to the pool. 1 where there were any. */
int mt_pool_transfer_reclaim(struct mt_pool *pool);
uint64_t mt_pool_transfer_bytes(struct mt_pool *pool);
/* Makes all lots empty, whoever had one: for a process in which nobody else is left. */
void mt_pool_transfer_forget(struct mt_pool *pool);

#endif
