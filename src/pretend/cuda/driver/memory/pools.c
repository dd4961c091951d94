/* SPDX-License-Identifier: MIT */
/* Pools of stream-ordered memory. A pool takes chunks of the device and gives parts of them out.
 * Work is done when it is asked for here, so what was freed can be used again at once, in any
 * stream; chunks go back when the program waits for something and more than the release threshold
 * is unused, as the documentation of CU_MEMPOOL_ATTR_RELEASE_THRESHOLD says. */
#include "pools.h"

#include <stdlib.h>

#include "pretend/cuda/driver/table.h"
#include "rehearse/account_write.h"

#define CHUNK_BYTES (UINT64_C(32) << 20) /* that a pool reserves at least, where there is room */
#define POOL        MT_ACCOUNT_POOL_NAME
#define BINS        40

/* A part of a chunk, free or in use. */
struct block {
    CUdeviceptr base;
    uint64_t bytes;
    struct pretend_range *range; /* NULL where it is free */
    struct chunk *chunk;
    struct block *before, *behind;       /* in the chunk */
    struct block *next_free, *last_free; /* of the pool's bin */
};

struct chunk {
    struct pretend_range *range;
    struct CUmemPoolHandle_st *pool;
    struct block *first;
    struct chunk *next, *last;
    uint64_t used_bytes;
};

struct CUmemPoolHandle_st {
    int device;
    int is_dropped;
    int reuse[3];
    uint64_t bytes_max; /* 0: as the device has */
    uint64_t threshold;
    uint64_t reserved, reserved_high, used, used_high;
    struct chunk *chunks;
    struct block *free_blocks[BINS];
    struct CUmemPoolHandle_st *next;
};

static struct pretend_table blocks;      /* in use, by their address */
static struct CUmemPoolHandle_st *pools; /* all */
static struct CUmemPoolHandle_st *defaults[MT_ACCOUNT_DEVICES_MAX];
static struct CUmemPoolHandle_st *currents[MT_ACCOUNT_DEVICES_MAX];

static int bin_of(uint64_t bytes)
{
    int bin = 63 - __builtin_clzll(bytes / PRETEND_UNIT);
    return bin < BINS ? bin : BINS - 1;
}

static void link_free(struct block *block)
{
    struct block **head = &block->chunk->pool->free_blocks[bin_of(block->bytes)];
    block->last_free = NULL;
    block->next_free = *head;
    if (*head)
        (*head)->last_free = block;
    *head = block;
}

static void unlink_free(struct block *block)
{
    if (block->next_free)
        block->next_free->last_free = block->last_free;
    if (block->last_free)
        block->last_free->next_free = block->next_free;
    else
        block->chunk->pool->free_blocks[bin_of(block->bytes)] = block->next_free;
}

static struct block *find_block(const struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
    for (int bin = bin_of(bytes); bin < BINS; bin++)
        for (struct block *block = pool->free_blocks[bin]; block; block = block->next_free)
            if (block->bytes >= bytes)
                return block;
    return NULL;
}

/* Makes what a block has over `bytes` a free block behind it. */
static int split(struct block *block, uint64_t bytes)
{
    if (block->bytes == bytes)
        return 1;
    struct block *rest = calloc(1, sizeof *rest);
    if (!rest)
        return 0;
    *rest = (struct block){.base = block->base + bytes,
                           .bytes = block->bytes - bytes,
                           .chunk = block->chunk,
                           .before = block,
                           .behind = block->behind};
    if (rest->behind)
        rest->behind->before = rest;
    block->behind = rest;
    block->bytes = bytes;
    link_free(rest);
    return 1;
}

/* Adds the free block behind to this one. */
static void join(struct block *block)
{
    struct block *behind = block->behind;
    unlink_free(behind);
    block->bytes += behind->bytes;
    block->behind = behind->behind;
    if (block->behind)
        block->behind->before = block;
    free(behind);
}

static void raise(uint64_t *high, uint64_t value)
{
    *high = *high > value ? *high : value;
}

/* Takes addresses and pages for a chunk: a whole one where there is room for it, else what is
 * needed. */
static CUresult fill_chunk(struct pretend_range *range, uint64_t bytes, uint64_t room)
{
    range->span = pretend_round_up(bytes, CHUNK_BYTES);
    if (pretend_range_place(range, PRETEND_PAGE, 0) != CUDA_SUCCESS)
        return pretend_refuse_addresses(range->device, (enum mt_category)range->category, bytes,
                                        POOL);
    range->held = range->bytes = range->span;
    if (range->held <= room && pretend_charge_quietly(range, POOL) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    range->held = range->bytes = pretend_round_up(bytes, PRETEND_PAGE);
    CUresult result = pretend_charge(range, bytes, POOL);
    if (result != CUDA_SUCCESS)
        pretend_range_remove(range);
    return result;
}

static CUresult make_chunk(struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
    struct chunk *chunk = calloc(1, sizeof *chunk);
    struct block *block = calloc(1, sizeof *block);
    struct pretend_range *range = pretend_range_make(PRETEND_CHUNK, pool->device, bytes);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t room = pool->bytes_max ? pool->bytes_max - pool->reserved : UINT64_MAX;
    if (chunk && block && range && pretend_round_up(bytes, PRETEND_PAGE) <= room)
        result = fill_chunk(range, bytes, room);
    if (result != CUDA_SUCCESS) {
        free(chunk);
        free(block);
        if (range)
            pretend_range_drop(range);
        return result;
    }
    range->inside = chunk;
    *chunk = (struct chunk){.range = range, .pool = pool, .first = block, .next = pool->chunks};
    if (pool->chunks)
        pool->chunks->last = chunk;
    pool->chunks = chunk;
    *block = (struct block){.base = range->base, .bytes = range->held, .chunk = chunk};
    link_free(block);
    pool->reserved += range->held;
    raise(&pool->reserved_high, pool->reserved);
    return CUDA_SUCCESS;
}

static void drop_chunk(struct chunk *chunk)
{
    struct CUmemPoolHandle_st *pool = chunk->pool;
    pool->reserved -= chunk->range->held;
    unlink_free(chunk->first);
    free(chunk->first);
    if (chunk->next)
        chunk->next->last = chunk->last;
    if (chunk->last)
        chunk->last->next = chunk->next;
    else
        pool->chunks = chunk->next;
    pretend_discharge(chunk->range);
    pretend_range_remove(chunk->range);
    pretend_range_drop(chunk->range);
    free(chunk);
}

void pretend_pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep)
{
    struct chunk *next;
    for (struct chunk *chunk = pool->chunks; chunk && pool->reserved > keep; chunk = next) {
        next = chunk->next;
        if (!chunk->used_bytes)
            drop_chunk(chunk);
    }
}

void pretend_pools_settle(void)
{
    if (!pools)
        return;
    pretend_lock();
    for (struct CUmemPoolHandle_st *pool = pools; pool; pool = pool->next)
        if (pool->reserved > pool->threshold && pool->reserved > pool->used)
            pretend_pool_trim(pool, pool->threshold);
    pretend_unlock();
}

int pretend_pools_release(int device)
{
    uint64_t released = 0;
    for (struct CUmemPoolHandle_st *pool = pools; pool; pool = pool->next) {
        uint64_t before = pool->reserved;
        if (pool->device == device)
            pretend_pool_trim(pool, 0);
        released += before - pool->reserved;
    }
    return released > 0;
}

CUresult pretend_pool_take(struct CUmemPoolHandle_st *pool, uint64_t bytes, CUdeviceptr *pointer)
{
    if (bytes > PRETEND_ADDRESSES)
        return pretend_refuse_addresses(pool->device, MT_CATEGORY_NONE, bytes, POOL);
    uint64_t rounded = pretend_round_up(bytes, PRETEND_UNIT);
    uint64_t taken_ns = pretend_now_ns();
    struct block *block = find_block(pool, rounded);
    if (!block) {
        CUresult result = make_chunk(pool, rounded);
        if (result != CUDA_SUCCESS)
            return result;
        block = find_block(pool, rounded);
    }
    struct pretend_range *range = pretend_range_make(PRETEND_POOLED, pool->device, bytes);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unlink_free(block);
    if (!split(block, rounded) || !pretend_table_put(&blocks, block->base, block)) {
        link_free(block);
        pretend_range_drop(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->base = block->base;
    range->span = rounded;
    range->taken_ns = taken_ns;
    range->inside = block;
    block->range = range;
    block->chunk->used_bytes += rounded;
    pool->used += rounded;
    raise(&pool->used_high, pool->used);
    *pointer = range->base;
    return CUDA_SUCCESS;
}

/* The last allocation of a pool that was destroyed takes it along. */
static void end_dropped(struct CUmemPoolHandle_st *pool)
{
    struct CUmemPoolHandle_st **at = &pools;
    if (!pool->is_dropped || pool->used)
        return;
    pretend_pool_trim(pool, 0);
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    free(pool);
}

void pretend_pool_give(struct pretend_range *pooled)
{
    struct block *block = pooled->inside;
    struct CUmemPoolHandle_st *pool = block->chunk->pool;
    pretend_table_remove(&blocks, block->base);
    pretend_usage_ended(pooled);
    pretend_written_clear(pooled->base, pooled->span);
    pretend_range_drop(pooled);
    block->range = NULL;
    block->chunk->used_bytes -= block->bytes;
    pool->used -= block->bytes;
    if (block->behind && !block->behind->range)
        join(block);
    if (block->before && !block->before->range) {
        struct block *before = block->before;
        link_free(block);
        unlink_free(before);
        join(before);
        block = before;
    }
    link_free(block);
    end_dropped(pool);
}

/* The beginning of an allocation is found at once, what lies inside by walking through its chunk.
 */
struct pretend_range *pretend_chunk_find(const struct pretend_range *range, CUdeviceptr pointer)
{
    const struct chunk *chunk = range->inside;
    const struct block *block = pretend_table_get(&blocks, pointer);
    if (block && block->chunk == chunk)
        return block->range;
    for (block = chunk->first; block; block = block->behind)
        if (pointer - block->base < block->bytes)
            return block->range;
    return NULL;
}

CUmemoryPool pretend_pool_handle(const struct pretend_range *pooled)
{
    const struct block *block = pooled->inside;
    return block->chunk->pool;
}

struct CUmemPoolHandle_st *pretend_pool_of(CUmemoryPool handle)
{
    struct CUmemPoolHandle_st *pool = pools;
    while (pool && (pool != handle || pool->is_dropped))
        pool = pool->next;
    return pool;
}

CUresult pretend_pool_make(int device, uint64_t bytes_max, struct CUmemPoolHandle_st **made)
{
    struct CUmemPoolHandle_st *pool = calloc(1, sizeof *pool);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* It takes whole pages; a limit past all addresses is none. */
    uint64_t pages_max =
        bytes_max < PRETEND_ADDRESSES ? pretend_round_up(bytes_max, PRETEND_PAGE) : 0;
    *pool = (struct CUmemPoolHandle_st){
        .device = device, .bytes_max = pages_max, .reuse = {1, 1, 1}, .next = pools};
    pools = pool;
    *made = pool;
    return CUDA_SUCCESS;
}

struct CUmemPoolHandle_st *pretend_pool_default(int device)
{
    if (!defaults[device] && pretend_pool_make(device, 0, &defaults[device]) != CUDA_SUCCESS)
        return NULL;
    return defaults[device];
}

struct CUmemPoolHandle_st *pretend_pool_current(int device)
{
    return currents[device] ? currents[device] : pretend_pool_default(device);
}

CUresult pretend_pool_set_current(int device, struct CUmemPoolHandle_st *pool)
{
    if (pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    currents[device] = pool;
    return CUDA_SUCCESS;
}

int pretend_pool_device(const struct CUmemPoolHandle_st *pool)
{
    return pool->device;
}

void pretend_pool_drop(struct CUmemPoolHandle_st *pool)
{
    if (currents[pool->device] == pool)
        currents[pool->device] = NULL;
    pool->is_dropped = 1;
    end_dropped(pool);
}

/* The attributes of reuse are ints, the others 64 bits. */
CUresult pretend_pool_get(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute,
                          void *value)
{
    const uint64_t numbers[] = {pool->threshold, pool->reserved, pool->reserved_high, pool->used,
                                pool->used_high};
    if (attribute < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
        attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        *(int *)value = pool->reuse[attribute - 1];
    else
        *(uint64_t *)value = numbers[attribute - CU_MEMPOOL_ATTR_RELEASE_THRESHOLD];
    return CUDA_SUCCESS;
}

/* High marks can be set to zero only, which makes them what is there now. */
CUresult pretend_pool_set(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute,
                          const void *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - 1] = *(const int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(const uint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const uint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            pool->used_high = pool->used;
        else
            pool->reserved_high = pool->reserved;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
