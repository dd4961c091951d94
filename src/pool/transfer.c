/* SPDX-License-Identifier: MIT */
/* The transfer cache (tcmalloc's name for it): blocks on their way from threads that only give back
 * to threads that ask. They change hands by the lot, each in a slot that one thread at a time has
 * to itself, so that two threads that pass blocks on wait for no lock. For the rest of the pool
 * such blocks are with a thread. */
#include "pool/front.h"

#include <sys/mman.h>

#define LOT         14u
#define SLOTS       16u                  /* of a size of small blocks */
#define LARGE_SLOTS 4u                   /* of all larger ones together */
#define MOST_BYTES  ((uint64_t)16 << 20) /* of small blocks */
#define MANY        1024u                /* blocks in a row, after which a thread only gives back */
#define TAKEN       UINT64_MAX

/* Blocks of a size, in two cache lines. `n` is how many there are, or TAKEN while a thread has the
 * lot to itself: it alone uses the addresses then. */
struct lot {
    _Atomic uint64_t n;
    _Atomic uint64_t key;
    uint64_t addresses[LOT];
};

/* Invariant, while nobody is between two steps: small_bytes is the sum of the small lots'. */
struct mt_pool_transfer {
    struct lot small[MT_POOL_CLASSES][SLOTS];
    struct lot large[LARGE_SLOTS];
    _Atomic uint64_t small_bytes;
};

static uint64_t bytes_of(uint64_t key)
{
    return (key + 1) * MT_POOL_ALIGN;
}

static int is_small(uint64_t key)
{
    return key < MT_POOL_CLASSES;
}

static struct lot *lots_of(struct mt_pool_transfer *transfer, uint64_t key, unsigned *n)
{
    *n = is_small(key) ? SLOTS : LARGE_SLOTS;
    return is_small(key) ? transfer->small[key] : transfer->large;
}

/* Where a thread left off among the lots of a size, so that who gives and who asks go round one
 * behind the other. */
static uint8_t *place_of(uint8_t *places, uint64_t key)
{
    return &places[is_small(key) ? key : MT_POOL_CLASSES];
}

static int has_key(const struct lot *lot, uint64_t key)
{
    return atomic_load_explicit(&lot->key, memory_order_relaxed) == key;
}

/* A lot to itself for the calling thread: with `full` one of the key's, else one without blocks.
 * How many it has is in *n. NULL where there is none. */
static struct lot *take_lot(struct mt_pool_transfer *transfer, uint8_t *places, uint64_t key,
                            int full, uint64_t *n)
{
    unsigned n_lots;
    struct lot *lots = lots_of(transfer, key, &n_lots);
    uint8_t *place = place_of(places, key);
    for (unsigned i = 0; i < n_lots; i++) {
        unsigned at = (*place + i) % n_lots;
        *n = mt_pool_read(&lots[at].n);
        if (*n == TAKEN || (*n != 0) != full || (full && !has_key(&lots[at], key)) ||
            !atomic_compare_exchange_strong_explicit(&lots[at].n, n, TAKEN, memory_order_acquire,
                                                     memory_order_relaxed))
            continue;
        if (!full || has_key(&lots[at], key)) {
            *place = (uint8_t)((at + 1) % n_lots);
            return &lots[at];
        }
        atomic_store_explicit(&lots[at].n, *n, memory_order_release);
    }
    return NULL;
}

/* Gives a lot back with so many blocks. */
static void put_lot(struct lot *lot, uint64_t n)
{
    atomic_store_explicit(&lot->n, n, memory_order_release);
}

/* The cache, if the thread gave many blocks back since it last asked for one; else NULL. */
static struct mt_pool_transfer *for_giver(struct mt_pool *pool, struct mt_pool_front *front)
{
    uint64_t n_asked = mt_pool_read(&front->n_taken) + front->n_missed;
    uint64_t n_kept = mt_pool_read(&front->n_kept);
    if (n_asked != front->n_asked_before)
        front->n_kept_before = n_kept;
    front->n_asked_before = n_asked;
    if (n_kept - front->n_kept_before < MANY)
        return NULL;
    struct mt_pool_transfer *transfer = atomic_load_explicit(&pool->transfer, memory_order_acquire);
    if (transfer)
        return transfer;
    struct mt_pool_transfer *made = mt_pool_make_table(sizeof *made);
    if (!made || atomic_compare_exchange_strong(&pool->transfer, &transfer, made))
        return made;
    munmap(made, sizeof *made);
    return transfer;
}

void mt_pool_transfer_finish(struct mt_pool *pool)
{
    struct mt_pool_transfer *transfer = atomic_load(&pool->transfer);
    if (transfer)
        munmap(transfer, sizeof *transfer);
}

int mt_pool_transfer_give(struct mt_pool *pool, struct mt_pool_front *front, unsigned key)
{
    struct mt_pool_transfer *transfer = for_giver(pool, front);
    unsigned n = atomic_load_explicit(&front->n[key], memory_order_relaxed);
    uint64_t none, bytes = LOT * bytes_of(key);
    if (!transfer || n < LOT || mt_pool_read(&transfer->small_bytes) + bytes > MOST_BYTES)
        return 0;
    struct lot *lot = take_lot(transfer, front->giving, key, 0, &none);
    if (!lot)
        return 0;
    atomic_store_explicit(&lot->key, key, memory_order_relaxed);
    for (unsigned i = 0; i < LOT; i++)
        lot->addresses[i] = front->addresses[key][n - LOT + i];
    atomic_store_explicit(&front->n[key], (uint8_t)(n - LOT), memory_order_relaxed);
    atomic_fetch_add_explicit(&transfer->small_bytes, bytes, memory_order_relaxed);
    put_lot(lot, LOT);
    return 1;
}

int mt_pool_transfer_give_large(struct mt_pool *pool, struct mt_pool_front *front)
{
    struct mt_pool_transfer *transfer = for_giver(pool, front);
    uint64_t key = front->large_keys[front->n_large - 1], n = 0;
    struct lot *lot = transfer ? take_lot(transfer, front->giving, key, 0, &n) : NULL;
    if (!lot)
        return 0;
    atomic_store_explicit(&lot->key, key, memory_order_relaxed);
    for (unsigned i = front->n_large; i-- > 0 && n < LOT;)
        if (front->large_keys[i] == key && (lot->addresses[n] = mt_pool_front_remove(front, i)))
            n++;
    put_lot(lot, n);
    return 1;
}

int mt_pool_transfer_has(struct mt_pool *pool, uint64_t key)
{
    struct mt_pool_transfer *transfer = atomic_load_explicit(&pool->transfer, memory_order_acquire);
    unsigned n_lots;
    if (!transfer || (is_small(key) && !mt_pool_read(&transfer->small_bytes)))
        return 0;
    const struct lot *lots = lots_of(transfer, key, &n_lots);
    for (unsigned i = 0; i < n_lots; i++)
        if (mt_pool_read(&lots[i].n) && has_key(&lots[i], key))
            return 1;
    return 0;
}

/* As many of a lot as there is room for. */
static void take_small(struct mt_pool_transfer *transfer, struct mt_pool_front *front, unsigned key)
{
    unsigned has = atomic_load_explicit(&front->n[key], memory_order_relaxed);
    uint64_t n, before;
    struct lot *lot =
        has < front->room[key] ? take_lot(transfer, front->taking, key, 1, &before) : NULL;
    if (!lot)
        return;
    for (n = before; n && has < front->room[key];)
        front->addresses[key][has++] = lot->addresses[--n];
    put_lot(lot, n);
    atomic_fetch_sub_explicit(&transfer->small_bytes, (before - n) * bytes_of(key),
                              memory_order_relaxed);
    atomic_store_explicit(&front->n[key], (uint8_t)has, memory_order_relaxed);
}

static void take_large(struct mt_pool_transfer *transfer, struct mt_pool_front *front, uint64_t key)
{
    uint64_t n;
    struct lot *lot =
        front->n_large < MT_POOL_FEW ? take_lot(transfer, front->taking, key, 1, &n) : NULL;
    if (!lot)
        return;
    while (n && front->n_large < MT_POOL_FEW) {
        front->large_keys[front->n_large] = key;
        atomic_store_explicit(&front->large_addresses[front->n_large++], lot->addresses[--n],
                              memory_order_release);
    }
    put_lot(lot, n);
}

void mt_pool_transfer_take(struct mt_pool *pool, struct mt_pool_front *front, uint64_t key)
{
    struct mt_pool_transfer *transfer = atomic_load_explicit(&pool->transfer, memory_order_acquire);
    if (!is_small(key)) {
        take_large(transfer, front, key);
        return;
    }
    if (front->room[key] < LOT) {
        pthread_mutex_lock(&pool->lock);
        mt_pool_front_grant(pool, front, (unsigned)key, LOT);
        pthread_mutex_unlock(&pool->lock);
    }
    take_small(transfer, front, (unsigned)key);
}

/* What a thread is moving at this moment is as good as in its hands. */
static int reclaim(struct mt_pool *pool, struct lot *lot)
{
    uint64_t n = mt_pool_read(&lot->n);
    if (!n || n == TAKEN ||
        !atomic_compare_exchange_strong_explicit(&lot->n, &n, TAKEN, memory_order_acquire,
                                                 memory_order_relaxed))
        return 0;
    uint64_t key = mt_pool_read(&lot->key);
    for (unsigned i = 0; i < n; i++)
        mt_pool_free_locked(pool, lot->addresses[i]);
    put_lot(lot, 0);
    if (is_small(key))
        atomic_fetch_sub_explicit(&pool->transfer->small_bytes, n * bytes_of(key),
                                  memory_order_relaxed);
    return 1;
}

int mt_pool_transfer_reclaim(struct mt_pool *pool)
{
    struct mt_pool_transfer *transfer = pool->transfer;
    int any = 0;
    for (unsigned i = 0; transfer && i < LARGE_SLOTS; i++)
        any |= reclaim(pool, &transfer->large[i]);
    if (!transfer || !mt_pool_read(&transfer->small_bytes))
        return any;
    for (unsigned key = 0; key < MT_POOL_CLASSES; key++)
        for (unsigned i = 0; i < SLOTS; i++)
            any |= reclaim(pool, &transfer->small[key][i]);
    return any;
}

uint64_t mt_pool_transfer_bytes(struct mt_pool *pool)
{
    const struct mt_pool_transfer *transfer = pool->transfer;
    uint64_t bytes = transfer ? mt_pool_read(&transfer->small_bytes) : 0;
    for (unsigned i = 0; transfer && i < LARGE_SLOTS; i++) {
        uint64_t n = mt_pool_read(&transfer->large[i].n);
        if (n != TAKEN)
            bytes += n * bytes_of(mt_pool_read(&transfer->large[i].key));
    }
    return bytes;
}

static void forget(struct lot *lots, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (mt_pool_read(&lots[i].n))
            put_lot(&lots[i], 0);
}

void mt_pool_transfer_forget(struct mt_pool *pool)
{
    struct mt_pool_transfer *transfer = pool->transfer;
    if (!transfer)
        return;
    forget(transfer->large, LARGE_SLOTS);
    for (unsigned key = 0; key < MT_POOL_CLASSES; key++)
        forget(transfer->small[key], SLOTS);
    atomic_store_explicit(&transfer->small_bytes, 0, memory_order_relaxed);
}
