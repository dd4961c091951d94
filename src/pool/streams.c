/* SPDX-License-Identifier: MIT */
/* The order of streams. A block that was given back is free for its own stream at once, and for
 * everyone when an event is done that was recorded after it. Events are recorded late: for a whole
 * batch of blocks, when room is missed, not for each block. While there is one stream beside 0, all
 * that is free is in its order, so that a program of one stream has no borders between its blocks.
 */
#include "pool/pool.h"

#include <stdlib.h>

#include <memtally/error_code.h>

struct mt_pool_stream *mt_pool_stream_of(struct mt_pool *pool, uint64_t stream, int make)
{
    for (size_t i = 0; i < pool->n_streams; i++)
        if (pool->streams[i]->stream == stream)
            return pool->streams[i];
    if (!make)
        return NULL;
    struct mt_pool_stream **streams =
        realloc(pool->streams, (pool->n_streams + 1) * sizeof(struct mt_pool_stream *));
    if (!streams)
        return NULL;
    pool->streams = streams;
    struct mt_pool_stream *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    entry->stream = stream;
    entry->batch = 1;
    streams[pool->n_streams++] = entry;
    return entry;
}

static int joins(const struct mt_pool_block *a, const struct mt_pool_block *b, int any)
{
    return a && b && !b->begins_segment && a->state == MT_POOL_FREE && b->state == MT_POOL_FREE &&
           (any || a->stream == b->stream);
}

static void take_from_index(struct mt_pool *pool, struct mt_pool_block *block)
{
    struct mt_pool_stream *stream = mt_pool_stream_of(pool, block->stream, 0);
    mt_pool_index_remove(&stream->index[block->arena], block);
    stream->n_free--;
}

/* Puts a block among the free ones, joined with its neighbours of the same order, or with `any`, of
 * whatever order: then it is in that of the only stream that there is. */
static struct mt_pool_block *put(struct mt_pool *pool, struct mt_pool_block *block, int any)
{
    struct mt_pool_arena *arena = &pool->arenas[block->arena];
    uint64_t order = block->stream;
    block->state = MT_POOL_FREE;
    pool->counts.free_bytes += block->size_bytes;
    if (joins(block, block->next, any)) {
        order |= block->next->stream;
        take_from_index(pool, block->next);
        mt_pool_arena_join(arena, &pool->descriptors, block);
    }
    if (joins(block->previous, block, any)) {
        block = block->previous;
        order |= block->stream;
        take_from_index(pool, block);
        mt_pool_arena_join(arena, &pool->descriptors, block);
    }
    block->stream = order;
    struct mt_pool_stream *stream = mt_pool_stream_of(pool, order, 0);
    mt_pool_index_insert(&stream->index[block->arena], block);
    stream->n_free++;
    return block;
}

struct mt_pool_block *mt_pool_put_free(struct mt_pool *pool, struct mt_pool_block *block)
{
    return put(pool, block, pool->n_streams == 2);
}

void mt_pool_take_free(struct mt_pool *pool, struct mt_pool_block *block)
{
    take_from_index(pool, block);
    pool->counts.free_bytes -= block->size_bytes;
}

/* Blocks of a stream whose batch is done become everyone's. */
static int free_for_everyone(struct mt_pool *pool, struct mt_pool_stream *stream)
{
    int n = 0;
    for (int i = 0; i < MT_POOL_ARENAS && stream->n_free; i++)
        for (struct mt_pool_block *block = pool->arenas[i].first, *next; block; block = next) {
            next = block->next;
            if (block->state != MT_POOL_FREE || block->stream != stream->stream ||
                block->batch > stream->done_batch)
                continue;
            mt_pool_take_free(pool, block);
            block->stream = 0;
            block->batch = 0;
            next = put(pool, block, 0)->next;
            n++;
        }
    return n > 0;
}

static int is_used(struct mt_pool *pool, const struct mt_pool_block *block)
{
    for (unsigned i = 0; i < block->uses->n; i++)
        if (mt_pool_stream_of(pool, block->uses->streams[i], 0)->done_batch <
            block->uses->batches[i])
            return 1;
    return 0;
}

/* Pending blocks that no other stream uses any more go in the order of their own. */
static int free_pending(struct mt_pool *pool)
{
    int n = 0;
    for (struct mt_pool_block **link = &pool->pending, *block; (block = *link);) {
        if (is_used(pool, block)) {
            link = &block->after;
            continue;
        }
        *link = block->after;
        for (unsigned i = 0; i < block->uses->n; i++)
            mt_pool_stream_of(pool, block->uses->streams[i], 0)->n_awaited--;
        free(block->uses);
        block->uses = NULL;
        pool->counts.pending_bytes -= block->size_bytes;
        mt_pool_put_free(pool, block);
        n++;
    }
    return n > 0;
}

/* 1 where the stream's event was done. */
static int ask(struct mt_pool *pool, struct mt_pool_stream *stream, int wait)
{
    const struct mt_pool_backend *backend = &pool->backend;
    if (!stream->has_event || backend->query(backend->context, stream->event, wait) != 1)
        return 0;
    backend->forget(backend->context, stream->event);
    stream->has_event = 0;
    stream->done_batch = stream->event_batch;
    return 1;
}

int mt_pool_settle(struct mt_pool *pool, int wait)
{
    const struct mt_pool_backend *backend = &pool->backend;
    int any = 0;
    for (size_t i = 1; i < pool->n_streams; i++) {
        struct mt_pool_stream *stream = pool->streams[i];
        if (!stream->n_free && !stream->n_awaited)
            continue;
        if (wait)
            pool->counts.n_waits++;
        int done = ask(pool, stream, wait);
        if (!stream->has_event &&
            backend->record(backend->context, stream->stream, &stream->event) == MT_OK) {
            stream->has_event = 1;
            stream->event_batch = stream->batch++;
            done |= ask(pool, stream, wait);
        }
        if (done)
            any |= free_for_everyone(pool, stream);
    }
    if (free_pending(pool)) {
        any = 1;
        for (size_t i = 1; i < pool->n_streams; i++)
            any |= free_for_everyone(pool, pool->streams[i]);
    }
    return any;
}
