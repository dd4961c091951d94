/* SPDX-License-Identifier: MIT */
/* The transfer cache (tcmalloc's name for it): blocks on their way from threads that only give back
 * to threads that ask. They change hands by the lot, so that two threads that pass blocks on meet
 * at the pool's lock once for many. For the rest of the pool such blocks are with a thread. */
#include "pool/front.h"

#include <stdlib.h>

#define MOST_BYTES ((uint64_t)16 << 20) /* of small blocks */
#define MOST_EACH  256u                 /* of a size */
#define MOST_LARGE (4 * MT_POOL_FEW)
#define MANY       1024u /* blocks in a row, after which a thread only gives back */

/* Guarded by the pool's lock; the counts may be read by others. Invariant: `bytes` is the sum of
 * the small blocks'. */
struct mt_pool_transfer {
    uint64_t bytes;
    _Atomic uint16_t n[MT_POOL_CLASSES];
    _Atomic unsigned n_large;
    uint64_t large_keys[MOST_LARGE];
    uint64_t large_addresses[MOST_LARGE];
    uint64_t addresses[MT_POOL_CLASSES][MOST_EACH];
};

static uint64_t bytes_of(unsigned key)
{
    return (key + 1) * (uint64_t)MT_POOL_ALIGN;
}

/* The cache, if the thread gave many blocks back since it last asked for one; else NULL. */
static struct mt_pool_transfer *for_giver(struct mt_pool *pool, struct mt_pool_front *front)
{
    uint64_t n_asked = mt_pool_read(&front->n_taken) + front->n_missed;
    uint64_t n_kept = mt_pool_read(&front->n_kept);
    if (n_asked != front->n_asked_before)
        front->n_kept_before = n_kept;
    front->n_asked_before = n_asked;
    int only_gives = n_kept - front->n_kept_before >= MANY;
    struct mt_pool_transfer *transfer = atomic_load(&pool->transfer);
    if (only_gives && !transfer) {
        transfer = calloc(1, sizeof *transfer);
        atomic_store(&pool->transfer, transfer);
    }
    return only_gives ? transfer : NULL;
}

void mt_pool_transfer_give(struct mt_pool *pool, struct mt_pool_front *front, unsigned key)
{
    struct mt_pool_transfer *transfer = for_giver(pool, front);
    unsigned n = front->n[key];
    if (!transfer)
        return;
    while (n && transfer->n[key] < MOST_EACH && transfer->bytes + bytes_of(key) <= MOST_BYTES) {
        transfer->addresses[key][transfer->n[key]++] = front->addresses[key][--n];
        transfer->bytes += bytes_of(key);
    }
    front->n[key] = (uint8_t)n;
}

void mt_pool_transfer_give_large(struct mt_pool *pool, struct mt_pool_front *front)
{
    struct mt_pool_transfer *transfer = for_giver(pool, front);
    if (!transfer)
        return;
    for (unsigned i = 0; i < front->n_large && transfer->n_large < MOST_LARGE; i++) {
        uint64_t address = atomic_exchange(&front->large_addresses[i], 0);
        if (!address)
            continue;
        transfer->large_keys[transfer->n_large] = front->large_keys[i];
        transfer->large_addresses[transfer->n_large++] = address;
    }
}

int mt_pool_transfer_has(struct mt_pool *pool, uint64_t key)
{
    struct mt_pool_transfer *transfer = atomic_load_explicit(&pool->transfer, memory_order_acquire);
    if (!transfer)
        return 0;
    if (key < MT_POOL_CLASSES)
        return atomic_load_explicit(&transfer->n[key], memory_order_relaxed) != 0;
    return atomic_load_explicit(&transfer->n_large, memory_order_relaxed) != 0;
}

static void take_small(struct mt_pool *pool, struct mt_pool_front *front, unsigned key)
{
    struct mt_pool_transfer *transfer = pool->transfer;
    unsigned n = front->n[key];
    unsigned want = transfer->n[key] < MT_POOL_DEPTH ? transfer->n[key] : MT_POOL_DEPTH;
    mt_pool_front_grant(pool, front, key, want);
    while (n < front->room[key] && transfer->n[key]) {
        front->addresses[key][n++] = transfer->addresses[key][--transfer->n[key]];
        transfer->bytes -= bytes_of(key);
    }
    front->n[key] = (uint8_t)n;
}

static void take_large(struct mt_pool *pool, struct mt_pool_front *front, uint64_t key)
{
    struct mt_pool_transfer *transfer = pool->transfer;
    for (unsigned i = transfer->n_large; i-- > 0 && front->n_large < MT_POOL_FEW;) {
        if (transfer->large_keys[i] != key)
            continue;
        front->large_keys[front->n_large] = key;
        atomic_store(&front->large_addresses[front->n_large++], transfer->large_addresses[i]);
        unsigned last = --transfer->n_large;
        transfer->large_keys[i] = transfer->large_keys[last];
        transfer->large_addresses[i] = transfer->large_addresses[last];
    }
}

void mt_pool_transfer_take(struct mt_pool *pool, struct mt_pool_front *front, uint64_t key)
{
    pthread_mutex_lock(&pool->lock);
    if (key < MT_POOL_CLASSES)
        take_small(pool, front, (unsigned)key);
    else
        take_large(pool, front, key);
    pthread_mutex_unlock(&pool->lock);
}

int mt_pool_transfer_reclaim(struct mt_pool *pool)
{
    struct mt_pool_transfer *transfer = pool->transfer;
    if (!transfer || (!transfer->bytes && !transfer->n_large))
        return 0;
    for (unsigned key = 0; key < MT_POOL_CLASSES; key++)
        while (transfer->n[key])
            mt_pool_free_locked(pool, transfer->addresses[key][--transfer->n[key]]);
    while (transfer->n_large)
        mt_pool_free_locked(pool, transfer->large_addresses[--transfer->n_large]);
    transfer->bytes = 0;
    return 1;
}

uint64_t mt_pool_transfer_bytes(struct mt_pool *pool)
{
    const struct mt_pool_transfer *transfer = pool->transfer;
    uint64_t bytes = transfer ? transfer->bytes : 0;
    for (unsigned i = 0; transfer && i < transfer->n_large; i++)
        bytes += (transfer->large_keys[i] + 1) * MT_POOL_ALIGN;
    return bytes;
}
