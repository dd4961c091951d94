/* SPDX-License-Identifier: MIT */
/* Growth and trim over a backend that chooses addresses itself: memory comes in segments, and goes
 * back by whole ones. Nothing moves here; near a limit whole free segments make room. */
#include "pool/pool.h"

#include <memtally/error_code.h>

#define STEP_PART 256u                 /* growth is at least this part of what is held */
#define STEP_MOST ((uint64_t)32 << 20) /* but no more than this */

static uint64_t up(const struct mt_pool *pool, uint64_t bytes)
{
    uint64_t page = pool->backend.page_bytes;
    return (bytes + page - 1) & ~(page - 1);
}

static void count(struct mt_pool *pool, uint64_t bytes)
{
    struct mt_pool_stats *counts = &pool->counts;
    counts->n_pages_made += bytes / pool->backend.page_bytes;
    counts->reserved_bytes += bytes;
    if (counts->reserved_bytes > counts->peak_reserved_bytes)
        counts->peak_reserved_bytes = counts->reserved_bytes;
}

static void give(struct mt_pool *pool, uint64_t address, uint64_t bytes)
{
    pool->backend.give(pool->backend.context, address, bytes);
    pool->counts.n_pages_returned += bytes / pool->backend.page_bytes;
    pool->counts.reserved_bytes -= bytes;
    mt_pool_tell(pool, address, bytes, 0);
}

uint64_t mt_pool_segments_return(struct mt_pool *pool, uint64_t keep_bytes, uint64_t before_tick)
{
    uint64_t returned = 0;
    for (int arena = MT_POOL_ARENAS; arena-- > 0;)
        while (pool->counts.reserved_bytes > keep_bytes) {
            struct mt_pool_block *block = mt_pool_giver(pool, arena, NULL, before_tick);
            if (!block)
                break;
            uint64_t address = block->address, bytes = block->size_bytes;
            mt_pool_take_free(pool, block);
            mt_pool_arena_drop(&pool->arenas[arena], &pool->descriptors, block);
            give(pool, address, bytes);
            returned += bytes;
        }
    return returned;
}

/* Makes room below a limit by whole free segments. 1 where so many bytes fit then. */
static int fits(struct mt_pool *pool, uint64_t bytes, uint64_t limit)
{
    if (!limit)
        return 1;
    if (bytes <= limit && pool->counts.reserved_bytes > limit - bytes)
        mt_pool_segments_return(pool, limit - bytes, UINT64_MAX);
    return bytes <= limit && pool->counts.reserved_bytes <= limit - bytes;
}

/* How large the next segment is: a step, while the limits are far. */
static uint64_t segment_bytes(const struct mt_pool *pool, uint64_t size_bytes)
{
    uint64_t need = up(pool, size_bytes), step = pool->counts.reserved_bytes / STEP_PART;
    uint64_t soft = pool->options.soft_bytes, held = pool->counts.reserved_bytes;
    step = up(pool, step > STEP_MOST ? STEP_MOST : step);
    return step <= need || (soft && (held > soft || step > (soft - held) / 2)) ? need : step;
}

int mt_pool_segments_grow(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t size_bytes,
                          struct mt_pool_block **block)
{
    const struct mt_pool_backend *backend = &pool->backend;
    uint64_t bytes = segment_bytes(pool, size_bytes), address;
    fits(pool, bytes, pool->options.soft_bytes);
    if (!fits(pool, bytes, pool->options.max_bytes))
        return MT_ELIMIT;
    int code = mt_pool_descriptors_ensure(&pool->descriptors, 1);
    if (code == MT_OK)
        code = backend->take(backend->context, bytes, &address);
    if (code == MT_ENOMEM && mt_pool_segments_return(pool, 0, UINT64_MAX)) {
        bytes = up(pool, size_bytes);
        code = backend->take(backend->context, bytes, &address);
    }
    if (code != MT_OK)
        return code;
    *block = mt_pool_arena_push(arena, &pool->descriptors, bytes);
    (*block)->address = address;
    (*block)->begins_segment = 1;
    pool->counts.n_growths++;
    count(pool, bytes);
    mt_pool_tell(pool, address, bytes, 1);
    return MT_OK;
}

void mt_pool_segments_release(struct mt_pool *pool)
{
    for (int i = 0; i < MT_POOL_ARENAS; i++)
        for (struct mt_pool_block *block = pool->arenas[i].first; block;) {
            uint64_t address = block->address, bytes = block->size_bytes;
            for (block = block->next; block && !block->begins_segment; block = block->next)
                bytes += block->size_bytes;
            pool->backend.give(pool->backend.context, address, bytes);
        }
}
