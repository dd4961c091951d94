/* SPDX-License-Identifier: MIT */
/* Requests from beginning to end: the thread's own blocks, a free block, late events, growth, and
 * what is left when nothing has room. */
#include "pool/front.h"

#include <memtally/error.h>
#include <stdlib.h>
#include <time.h>

#include "base/error.h"

#define MOST_ADDRESS_BYTES ((uint64_t)1 << 46)
#define ADDRESS_BYTES      ((uint64_t)1 << 40)
#define ADDRESS_TIMES      16
#define MAX_AGE_NS         ((uint64_t)300 * 1000000000)
#define ATTEMPTS           8
#define TICKS_OF_AGE       (MT_POOL_TICKS / 2)

static uint64_t monotonic_ns(void *context)
{
    (void)context;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static void complete_options(struct mt_pool *pool)
{
    struct mt_pool_options *options = &pool->options;
    if (!options->soft_bytes)
        options->soft_bytes = options->max_bytes;
    if (!options->address_bytes)
        options->address_bytes =
            options->max_bytes && options->max_bytes < ADDRESS_BYTES / ADDRESS_TIMES
                ? options->max_bytes * ADDRESS_TIMES
                : ADDRESS_BYTES;
    options->address_bytes = up(options->address_bytes, pool->backend.page_bytes);
    if (!options->max_age_ns)
        options->max_age_ns = MAX_AGE_NS;
    if (!options->now_ns)
        options->now_ns = monotonic_ns;
}

/* Reserves an arena's addresses. */
static int init_arena(struct mt_pool *pool, struct mt_pool_arena *arena)
{
    uint64_t bytes = pool->options.address_bytes;
    if (arena->pages || mt_pool_has_segments(pool))
        return MT_OK;
    arena->pages = calloc((size_t)(bytes / pool->backend.page_bytes), sizeof *arena->pages);
    if (!arena->pages)
        return MT_ENOMEM;
    int code = pool->backend.reserve(pool->backend.context, bytes, &arena->base);
    if (code == MT_OK) {
        arena->size_bytes = bytes;
        return MT_OK;
    }
    free(arena->pages);
    arena->pages = NULL;
    return code;
}

/* The arena of what lives long is made when it is first asked for. */
static int init_arenas(struct mt_pool *pool)
{
    for (int i = 0; i < MT_POOL_ARENAS; i++)
        pool->arenas[i].number = (uint8_t)i;
    int code = init_arena(pool, &pool->arenas[MT_POOL_SMALL]);
    return code == MT_OK ? init_arena(pool, &pool->arenas[MT_POOL_LARGE]) : code;
}

static int init(struct mt_pool *pool)
{
    complete_options(pool);
    if (mt_pool_has_segments(pool))
        pool->options.no_front = 1;
    pool->tick_ns[0] = pool->options.now_ns(pool->options.context);
    int code = mt_pool_table_init(&pool->live);
    if (code == MT_OK && !mt_pool_stream_of(pool, 0, 1))
        code = MT_ENOMEM;
    if (code == MT_OK)
        code = init_arenas(pool);
    return code;
}

static void destroy_unshared(struct mt_pool *pool)
{
    mt_pool_release_all(pool);
    while (pool->n_streams)
        free(pool->streams[--pool->n_streams]);
    free(pool->streams);
    mt_pool_table_finish(&pool->live);
    mt_pool_descriptors_finish(&pool->descriptors);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

int mt_pool_create(const struct mt_pool_backend *backend, const struct mt_pool_options *options,
                   struct mt_pool **pool, struct mt_error *error)
{
    if (backend->page_bytes < 65536 || backend->page_bytes & (backend->page_bytes - 1) ||
        (options && options->address_bytes > MOST_ADDRESS_BYTES))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "a pool's pages are a power of two of at least 64 KiB, and its addresses at "
                       "most 64 TiB");
    struct mt_pool *made = calloc(1, sizeof *made);
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory for a pool");
    pthread_mutex_init(&made->lock, NULL);
    made->backend = *backend;
    if (options)
        made->options = *options;
    int code = init(made);
    if (code == MT_OK)
        code = mt_pool_front_init(made);
    if (code != MT_OK) {
        destroy_unshared(made);
        return mt_fail(error, code, MT_NO_OFFSET, "a pool could not be made: %s",
                       mt_error_sentence(code));
    }
    *pool = made;
    return MT_OK;
}

static void forget_streams(struct mt_pool *pool)
{
    mt_pool_settle(pool, 1);
    for (size_t i = 0; i < pool->n_streams; i++)
        if (pool->streams[i]->has_event)
            pool->backend.forget(pool->backend.context, pool->streams[i]->event);
    for (int i = 0; i < MT_POOL_ARENAS; i++)
        for (struct mt_pool_block *block = pool->arenas[i].first; block; block = block->next)
            free(block->uses);
}

void mt_pool_destroy(struct mt_pool *pool)
{
    if (!pool)
        return;
    mt_pool_front_finish(pool);
    forget_streams(pool);
    destroy_unshared(pool);
}

/* A free block for a stream, taken out of its index: of its own order and of everyone's the better
 * fit. */
static struct mt_pool_block *find(struct mt_pool *pool, const struct mt_pool_arena *arena,
                                  uint64_t size_bytes, uint64_t stream)
{
    struct mt_pool_block *block =
        mt_pool_index_find(&pool->streams[0]->index[arena->number], size_bytes);
    if (stream) {
        struct mt_pool_block *own = mt_pool_index_find(
            &mt_pool_stream_of(pool, stream, 0)->index[arena->number], size_bytes);
        if (own && (!block || own->size_bytes <= block->size_bytes))
            block = own;
    }
    if (block)
        mt_pool_take_free(pool, block);
    return block;
}

static uint64_t hand_out(struct mt_pool *pool, struct mt_pool_block *block, uint64_t size_bytes,
                         uint64_t stream)
{
    struct mt_pool_stats *counts = &pool->counts;
    block->state = MT_POOL_LIVE;
    if (block->size_bytes > size_bytes &&
        mt_pool_descriptors_ensure(&pool->descriptors, 1) == MT_OK)
        mt_pool_put_free(pool, mt_pool_arena_cut(&pool->arenas[block->arena], &pool->descriptors,
                                                 block, size_bytes));
    block->stream = stream;
    mt_pool_table_insert(&pool->live, block);
    counts->live_bytes += block->size_bytes;
    if (counts->live_bytes > counts->peak_live_bytes)
        counts->peak_live_bytes = counts->live_bytes;
    counts->n_allocations++;
    if (!stream)
        mt_pool_front_mark(pool, block->address, block->size_bytes);
    return block->address;
}

/* 1 where an event that is done may make room for a stream: something free in another order. */
static int may_settle(const struct mt_pool *pool, uint64_t stream)
{
    for (size_t i = 1; i < pool->n_streams; i++)
        if (pool->streams[i]->n_awaited ||
            (pool->streams[i]->n_free && pool->streams[i]->stream != stream))
            return 1;
    return 0;
}

static int is_near(const struct mt_pool *pool, uint64_t size_bytes)
{
    uint64_t soft = pool->options.soft_bytes;
    return soft &&
           (pool->counts.reserved_bytes >= soft || soft - pool->counts.reserved_bytes < size_bytes);
}

static int grow(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t size_bytes,
                uint64_t stream, struct mt_pool_block **block)
{
    int code = mt_pool_grow(pool, arena, size_bytes, stream, block);
    if (code == MT_OK)
        (*block)->freed_tick = pool->tick;
    return code;
}

struct request {
    uint64_t size_bytes;
    uint64_t stream;
    unsigned hints;
};

static int allocate_locked(struct mt_pool *pool, const struct request *request, uint64_t *address)
{
    uint64_t size_bytes = request->size_bytes, stream = request->stream;
    struct mt_pool_arena *arena = &pool->arenas[size_bytes > MT_POOL_SMALL_BYTES];
    if (pool->sleeps)
        return MT_EBUSY;
    if (!mt_pool_stream_of(pool, stream, 1))
        return MT_ENOMEM;
    if (request->hints & MT_POOL_LONG_LIVED) {
        arena = &pool->arenas[MT_POOL_LONG];
        int code = init_arena(pool, arena);
        if (code != MT_OK)
            return code;
    }
    struct mt_pool_block *block = find(pool, arena, size_bytes, stream);
    if (!block && mt_pool_front_reclaim(pool))
        block = find(pool, arena, size_bytes, stream);
    if (!block && may_settle(pool, stream) && mt_pool_settle(pool, 0))
        block = find(pool, arena, size_bytes, stream);
    if (!block && request->hints & MT_POOL_YIELDING && is_near(pool, size_bytes))
        return MT_ELIMIT;
    if (!block && is_near(pool, size_bytes) && mt_pool_settle(pool, 1))
        block = find(pool, arena, size_bytes, stream);
    if (block) {
        pool->counts.n_hits++;
        *address = hand_out(pool, block, size_bytes, stream);
        return MT_OK;
    }
    int code = grow(pool, arena, size_bytes, stream, &block);
    if (code != MT_OK && mt_pool_settle(pool, 1)) {
        block = find(pool, arena, size_bytes, stream);
        code = block ? MT_OK : grow(pool, arena, size_bytes, stream, &block);
    }
    if (code != MT_OK)
        return code;
    pool->counts.n_misses++;
    *address = hand_out(pool, block, size_bytes, stream);
    return MT_OK;
}

static uint64_t largest_free(const struct mt_pool *pool)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < pool->n_streams; i++)
        for (int arena = 0; arena < MT_POOL_ARENAS; arena++) {
            struct mt_pool_block *block = mt_pool_index_largest(&pool->streams[i]->index[arena]);
            for (; block; block = block->after)
                if (block->size_bytes > largest)
                    largest = block->size_bytes;
        }
    return largest;
}

/* Nothing had room: threads' fronts are emptied, and the caller is asked to make some. */
static int allocate_short(struct mt_pool *pool, const struct request *request, uint64_t *address,
                          int code)
{
    struct mt_pool_shortage shortage = {.requested_bytes = request->size_bytes,
                                        .hints = request->hints};
    atomic_fetch_add(&pool->flush, 1);
    for (; shortage.attempt <= ATTEMPTS; shortage.attempt++) {
        mt_pool_front_flush(pool);
        pthread_mutex_lock(&pool->lock);
        code = allocate_locked(pool, request, address);
        shortage.reserved_bytes = pool->counts.reserved_bytes;
        shortage.free_bytes = pool->counts.free_bytes;
        shortage.largest_free_bytes = largest_free(pool);
        pthread_mutex_unlock(&pool->lock);
        if (code == MT_OK)
            return code;
        if (shortage.attempt == ATTEMPTS || request->hints & MT_POOL_YIELDING ||
            !pool->options.on_shortage ||
            !pool->options.on_shortage(pool->options.context, &shortage))
            break;
    }
    pthread_mutex_lock(&pool->lock);
    pool->counts.n_failures++;
    pthread_mutex_unlock(&pool->lock);
    return code;
}

static __attribute__((noinline)) int allocate(struct mt_pool *pool, uint64_t bytes, uint64_t stream,
                                              unsigned hints, uint64_t *address)
{
    if (bytes > pool->options.address_bytes)
        return MT_ELIMIT;
    struct request request = {bytes ? up(bytes, MT_POOL_ALIGN) : MT_POOL_ALIGN, stream, hints};
    if (!stream && !hints && mt_pool_front_take(pool, request.size_bytes, address))
        return MT_OK;
    if (stream && !pool->backend.record)
        return MT_EARG;
    pthread_mutex_lock(&pool->lock);
    if (request.size_bytes > MT_POOL_SMALL_BYTES)
        mt_pool_front_put_back(pool);
    int code = allocate_locked(pool, &request, address);
    pthread_mutex_unlock(&pool->lock);
    return code == MT_OK || code == MT_EBUSY ? code : allocate_short(pool, &request, address, code);
}

/* Apart, so that the way of small blocks that the thread keeps saves no registers. */
static __attribute__((noinline)) int allocate_other(struct mt_pool *pool, uint64_t bytes,
                                                    uint64_t stream, uint64_t *address)
{
    if (!stream && mt_pool_front_pop_large(pool, bytes, address))
        return MT_OK;
    return allocate(pool, bytes, stream, 0, address);
}

__attribute__((aligned(64))) int mt_pool_allocate(struct mt_pool *pool, uint64_t bytes,
                                                  uint64_t stream, uint64_t *address)
{
    if (RARELY(stream))
        return allocate_other(pool, bytes, stream, address);
    if (RARELY(!mt_pool_front_pop_small(pool, bytes, address)))
        return allocate_other(pool, bytes, 0, address);
    return MT_OK;
}

int mt_pool_allocate_hinted(struct mt_pool *pool, uint64_t bytes, uint64_t stream, unsigned hints,
                            uint64_t *address)
{
    if (hints & ~(unsigned)(MT_POOL_LONG_LIVED | MT_POOL_YIELDING))
        return MT_EARG;
    return hints ? allocate(pool, bytes, stream, hints, address)
                 : mt_pool_allocate(pool, bytes, stream, address);
}

int mt_pool_free_locked(struct mt_pool *pool, uint64_t address)
{
    struct mt_pool_block *block = mt_pool_table_find(&pool->live, address);
    if (!block)
        return MT_ENOTFOUND;
    mt_pool_table_remove(&pool->live, block);
    mt_pool_front_mark(pool, address, 0);
    pool->counts.live_bytes -= block->size_bytes;
    block->freed_tick = pool->tick;
    block->batch = block->stream ? mt_pool_stream_of(pool, block->stream, 0)->batch : 0;
    if (!block->uses) {
        mt_pool_put_free(pool, block);
        return MT_OK;
    }
    for (unsigned i = 0; i < block->uses->n; i++) {
        struct mt_pool_stream *stream = mt_pool_stream_of(pool, block->uses->streams[i], 0);
        block->uses->batches[i] = stream->batch;
        stream->n_awaited++;
    }
    block->state = MT_POOL_PENDING;
    block->after = pool->pending;
    pool->pending = block;
    pool->counts.pending_bytes += block->size_bytes;
    return MT_OK;
}

static __attribute__((noinline)) int give_back(struct mt_pool *pool, uint64_t address)
{
    if (!address || mt_pool_front_push_large(pool, address))
        return MT_OK;
    int kept = mt_pool_front_keep(pool, address);
    if (kept)
        return kept > 0 ? MT_OK : kept;
    pthread_mutex_lock(&pool->lock);
    int code = mt_pool_free_locked(pool, address);
    if (code == MT_OK)
        pool->counts.n_frees++;
    pthread_mutex_unlock(&pool->lock);
    return code;
}

__attribute__((aligned(64))) int mt_pool_free(struct mt_pool *pool, uint64_t address)
{
    if (RARELY(!mt_pool_front_push_small(pool, address)))
        return give_back(pool, address);
    return MT_OK;
}

static int add_use(struct mt_pool *pool, struct mt_pool_block *block, uint64_t stream)
{
    if (block->stream == stream)
        return MT_OK;
    if (!block->uses && !(block->uses = calloc(1, sizeof *block->uses)))
        return MT_ENOMEM;
    struct mt_pool_uses *uses = block->uses;
    for (unsigned i = 0; i < uses->n; i++)
        if (uses->streams[i] == stream)
            return MT_OK;
    if (uses->n == MT_POOL_MAX_USES)
        return MT_ELIMIT;
    if (!mt_pool_stream_of(pool, stream, 1))
        return MT_ENOMEM;
    uses->streams[uses->n++] = stream;
    mt_pool_front_mark(pool, block->address, 0); /* no thread may keep it */
    return MT_OK;
}

int mt_pool_use_on_stream(struct mt_pool *pool, uint64_t address, uint64_t stream)
{
    if (!stream || !pool->backend.record)
        return MT_EARG;
    pthread_mutex_lock(&pool->lock);
    struct mt_pool_block *block =
        mt_pool_front_has(pool, address) ? NULL : mt_pool_table_find(&pool->live, address);
    int code = block ? add_use(pool, block, stream) : MT_ENOTFOUND;
    pthread_mutex_unlock(&pool->lock);
    return code;
}

int mt_pool_describe(struct mt_pool *pool, uint64_t address, uint64_t *size_bytes, uint64_t *stream)
{
    pthread_mutex_lock(&pool->lock);
    struct mt_pool_block *block =
        mt_pool_front_has(pool, address) ? NULL : mt_pool_table_find(&pool->live, address);
    if (block) {
        *size_bytes = block->size_bytes;
        *stream = block->stream;
    }
    pthread_mutex_unlock(&pool->lock);
    return block != NULL;
}

uint64_t mt_pool_block_bytes(struct mt_pool *pool, uint64_t address)
{
    uint64_t size_bytes, stream;
    return mt_pool_describe(pool, address, &size_bytes, &stream) ? size_bytes : 0;
}

void mt_pool_limit(struct mt_pool *pool, uint64_t max_bytes, uint64_t soft_bytes)
{
    pthread_mutex_lock(&pool->lock);
    pool->options.max_bytes = max_bytes;
    pool->options.soft_bytes = soft_bytes ? soft_bytes : max_bytes;
    pthread_mutex_unlock(&pool->lock);
}

uint64_t mt_pool_trim(struct mt_pool *pool, uint64_t keep_bytes)
{
    atomic_fetch_add(&pool->flush, 1);
    mt_pool_front_flush(pool);
    pthread_mutex_lock(&pool->lock);
    mt_pool_front_reclaim(pool);
    mt_pool_settle(pool, 0);
    uint64_t bytes = pool->sleeps ? 0 : mt_pool_return_pages(pool, keep_bytes, UINT64_MAX);
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

uint64_t mt_pool_tick(struct mt_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    mt_pool_front_reclaim(pool);
    uint64_t now = pool->options.now_ns(pool->options.context);
    uint64_t age = pool->options.max_age_ns;
    uint64_t began = pool->tick_ns[pool->tick % MT_POOL_TICKS];
    if (now > began && now - began >= age / TICKS_OF_AGE)
        pool->tick_ns[++pool->tick % MT_POOL_TICKS] = now;
    mt_pool_settle(pool, 0);
    /* What was given back in a tick was given back before the next one began. */
    uint64_t next = pool->tick;
    while (next && pool->tick - next < MT_POOL_TICKS - 1 &&
           (now < age || pool->tick_ns[next % MT_POOL_TICKS] > now - age))
        next--;
    uint64_t bytes = next && !pool->sleeps ? mt_pool_return_pages(pool, 0, next - 1) : 0;
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

void mt_pool_stats_read(struct mt_pool *pool, struct mt_pool_stats *stats)
{
    pthread_mutex_lock(&pool->lock);
    *stats = pool->counts;
    stats->largest_free_bytes = largest_free(pool);
    for (int i = 0; i < MT_POOL_ARENAS; i++)
        stats->address_bytes_used += pool->arenas[i].top_bytes;
    mt_pool_front_count(pool, stats);
    pthread_mutex_unlock(&pool->lock);
}
