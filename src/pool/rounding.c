/* SPDX-License-Identifier: MIT */
/* The policy `rounding`: sizes are rounded up by steps, and what is given back serves requests of
 * its own rounded size and stream alone. Behind it a pool gives the memory; blocks that are kept
 * live there. */
#include "pool/pool.h"

#include <stdlib.h>

#include <memtally/error_code.h>

#define MB UINT64_C(1000000)

/* What is kept of one size and stream. */
struct kept {
    uint64_t size_bytes;
    uint64_t stream;
    uint64_t *addresses;
    size_t n, room;
};

struct mt_pool_rounding {
    pthread_mutex_t lock;
    struct mt_pool *pool;
    struct kept *sizes;
    size_t n_sizes;
    uint64_t n_hits, n_misses;
};

uint64_t mt_pool_rounded_bytes(uint64_t bytes)
{
    uint64_t step = bytes < MB         ? MB / 10
                    : bytes < 10 * MB  ? MB
                    : bytes < 100 * MB ? 10 * MB
                                       : 50 * MB;
    uint64_t rest = bytes % step;
    if (!bytes)
        return step;
    return rest && bytes <= UINT64_MAX - step ? bytes - rest + step : bytes;
}

int mt_pool_rounding_create(struct mt_pool *pool, struct mt_pool_rounding **rounding)
{
    struct mt_pool_rounding *made = calloc(1, sizeof *made);
    if (!made)
        return MT_ENOMEM;
    pthread_mutex_init(&made->lock, NULL);
    made->pool = pool;
    *rounding = made;
    return MT_OK;
}

static struct kept *find(struct mt_pool_rounding *rounding, uint64_t size_bytes, uint64_t stream)
{
    for (size_t i = 0; i < rounding->n_sizes; i++)
        if (rounding->sizes[i].size_bytes == size_bytes && rounding->sizes[i].stream == stream)
            return &rounding->sizes[i];
    return NULL;
}

static struct kept *make(struct mt_pool_rounding *rounding, uint64_t size_bytes, uint64_t stream)
{
    struct kept *kept = find(rounding, size_bytes, stream);
    if (kept)
        return kept;
    struct kept *sizes = realloc(rounding->sizes, (rounding->n_sizes + 1) * sizeof *sizes);
    if (!sizes)
        return NULL;
    rounding->sizes = sizes;
    sizes[rounding->n_sizes] = (struct kept){.size_bytes = size_bytes, .stream = stream};
    return &sizes[rounding->n_sizes++];
}

/* Gives all that is kept to the pool; 1 where there was something. With the lock. */
static int empty(struct mt_pool_rounding *rounding)
{
    int any = 0;
    for (size_t i = 0; i < rounding->n_sizes; i++)
        while (rounding->sizes[i].n) {
            mt_pool_free(rounding->pool, rounding->sizes[i].addresses[--rounding->sizes[i].n]);
            any = 1;
        }
    return any;
}

int mt_pool_rounding_allocate(struct mt_pool_rounding *rounding, uint64_t bytes, uint64_t stream,
                              uint64_t *address)
{
    uint64_t rounded = mt_pool_rounded_bytes(bytes);
    uint64_t size_bytes = (rounded + MT_POOL_ALIGN - 1) / MT_POOL_ALIGN * MT_POOL_ALIGN;
    int code = MT_OK;
    pthread_mutex_lock(&rounding->lock);
    struct kept *kept = find(rounding, size_bytes, stream);
    if (kept && kept->n) {
        *address = kept->addresses[--kept->n];
        rounding->n_hits++;
    } else {
        code = mt_pool_allocate(rounding->pool, rounded, stream, address);
        if (code != MT_OK && empty(rounding))
            code = mt_pool_allocate(rounding->pool, rounded, stream, address);
        rounding->n_misses += code == MT_OK;
    }
    pthread_mutex_unlock(&rounding->lock);
    return code;
}

int mt_pool_rounding_free(struct mt_pool_rounding *rounding, uint64_t address)
{
    uint64_t size_bytes, stream;
    if (!address)
        return MT_OK;
    if (!mt_pool_describe(rounding->pool, address, &size_bytes, &stream))
        return MT_ENOTFOUND;
    pthread_mutex_lock(&rounding->lock);
    struct kept *kept = make(rounding, size_bytes, stream);
    if (kept && kept->n == kept->room) {
        size_t room = kept->room * 2 + 8;
        uint64_t *addresses = realloc(kept->addresses, room * sizeof *addresses);
        kept->room = addresses ? room : kept->room;
        kept->addresses = addresses ? addresses : kept->addresses;
    }
    int is_kept = kept && kept->n < kept->room;
    if (is_kept)
        kept->addresses[kept->n++] = address;
    pthread_mutex_unlock(&rounding->lock);
    return is_kept ? MT_OK : mt_pool_free(rounding->pool, address);
}

void mt_pool_rounding_trim(struct mt_pool_rounding *rounding)
{
    pthread_mutex_lock(&rounding->lock);
    empty(rounding);
    pthread_mutex_unlock(&rounding->lock);
}

void mt_pool_rounding_count(struct mt_pool_rounding *rounding, uint64_t *n_hits, uint64_t *n_misses)
{
    pthread_mutex_lock(&rounding->lock);
    *n_hits = rounding->n_hits;
    *n_misses = rounding->n_misses;
    pthread_mutex_unlock(&rounding->lock);
}

void mt_pool_rounding_destroy(struct mt_pool_rounding *rounding)
{
    if (!rounding)
        return;
    empty(rounding);
    for (size_t i = 0; i < rounding->n_sizes; i++)
        free(rounding->sizes[i].addresses);
    free(rounding->sizes);
    pthread_mutex_destroy(&rounding->lock);
    free(rounding);
}
