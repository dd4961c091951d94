/* SPDX-License-Identifier: MIT */
/* A pool beside a plain model of it, over a simulated device whose calls may be made to fail. */
#ifndef MT_TEST_POOL_MODEL_H
#define MT_TEST_POOL_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <memtally/error.h>

#include "pool/pool.h"

#define PAGE   ((uint64_t)2 << 20)
#define BLOCKS 400

/* A backend over another, whose n-th call that may fail does. */
struct faulty {
    const struct mt_pool_backend *real;
    struct mt_pool_backend backend;
    uint64_t n_calls, fail_at; /* 0: none */
    uint64_t every;            /* one of so many on average; 0: none */
    uint64_t now;
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static int fails(struct faulty *faulty)
{
    faulty->n_calls++;
    return faulty->n_calls == faulty->fail_at ||
           (faulty->every && next_random(&(uint64_t){faulty->n_calls}) % faulty->every == 0);
}

#define REAL(context) (((struct faulty *)(context))->real)

static int reserve(void *c, uint64_t bytes, uint64_t *address)
{
    return fails(c) ? MT_ENOMEM : REAL(c)->reserve(REAL(c)->context, bytes, address);
}
static void unreserve(void *c, uint64_t address, uint64_t bytes)
{
    REAL(c)->unreserve(REAL(c)->context, address, bytes);
}
static int create(void *c, uint64_t *page)
{
    return fails(c) ? MT_ENOMEM : REAL(c)->create(REAL(c)->context, page);
}
static void destroy(void *c, uint64_t page)
{
    REAL(c)->destroy(REAL(c)->context, page);
}
static int attach(void *c, uint64_t address, uint64_t page)
{
    return fails(c) ? MT_EIO : REAL(c)->attach(REAL(c)->context, address, page);
}
static int enable(void *c, uint64_t address, uint64_t bytes)
{
    return fails(c) ? MT_EIO : REAL(c)->enable(REAL(c)->context, address, bytes);
}
static int detach(void *c, uint64_t address, uint64_t page)
{
    return fails(c) ? MT_EIO : REAL(c)->detach(REAL(c)->context, address, page);
}
static int record(void *c, uint64_t stream, uint64_t *event)
{
    return fails(c) ? MT_EIO : REAL(c)->record(REAL(c)->context, stream, event);
}
static int query(void *c, uint64_t event, int wait)
{
    return fails(c) ? MT_EIO : REAL(c)->query(REAL(c)->context, event, wait);
}
static void forget(void *c, uint64_t event)
{
    REAL(c)->forget(REAL(c)->context, event);
}

static int take(void *c, uint64_t bytes, uint64_t *address)
{
    return fails(c) ? MT_ENOMEM : REAL(c)->take(REAL(c)->context, bytes, address);
}
static void give(void *c, uint64_t address, uint64_t bytes)
{
    REAL(c)->give(REAL(c)->context, address, bytes);
}
static int copy(void *c, uint64_t address, void *host, uint64_t bytes, int is_back)
{
    return fails(c) ? MT_EIO : REAL(c)->copy(REAL(c)->context, address, host, bytes, is_back);
}

static void faulty_init(struct faulty *faulty, const struct mt_pool_backend *real)
{
    *faulty = (struct faulty){.real = real};
    faulty->backend =
        (struct mt_pool_backend){faulty, real->page_bytes, reserve, unreserve, create, destroy,
                                 attach, enable,           detach,  record,    query,  forget};
    if (!real->reserve)
        faulty->backend.reserve = NULL;
    faulty->backend.take = real->take ? take : NULL;
    faulty->backend.give = real->give ? give : NULL;
    faulty->backend.copy = real->copy ? copy : NULL;
}

static uint64_t now_of(void *context)
{
    return ((struct faulty *)context)->now;
}

/* The order of an arena's blocks, and what lies behind them. */
static void check_arena(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t bytes[4])
{
    uint64_t at = arena->base, page = pool->backend.page_bytes, sum = 0;
    struct mt_pool_block *previous = NULL;
    for (struct mt_pool_block *block = arena->first; block; previous = block, block = block->next) {
        if (block->begins_segment)
            at = block->address;
        assert_int_equal(block->address, at);
        assert_true(block->size_bytes > 0);
        assert_ptr_equal(block->previous, previous);
        if (previous && previous->state == block->state && !block->begins_segment)
            assert_false(block->state == MT_POOL_HOLE ||
                         (block->state == MT_POOL_FREE && previous->stream == block->stream));
        if (block->state == MT_POOL_HOLE)
            assert_true(block->address % page == 0 && block->size_bytes % page == 0);
        else if (!mt_pool_has_segments(pool))
            for (uint64_t i = (at - arena->base) / page;
                 i <= (at + block->size_bytes - 1 - arena->base) / page; i++)
                assert_true(arena->pages[i]);
        bytes[block->state] += block->size_bytes;
        at += block->size_bytes;
        sum += block->size_bytes;
    }
    assert_ptr_equal(arena->last, previous);
    assert_int_equal(sum, arena->top_bytes);
}

static void check(struct mt_pool *pool)
{
    uint64_t bytes[4] = {0};
    struct mt_pool_stats stats;
    mt_pool_stats_read(pool, &stats);
    for (int i = 0; i < MT_POOL_ARENAS; i++)
        check_arena(pool, &pool->arenas[i], bytes);
    assert_int_equal(bytes[MT_POOL_LIVE], stats.live_bytes + stats.front_bytes);
    assert_int_equal(bytes[MT_POOL_FREE], stats.free_bytes);
    assert_int_equal(bytes[MT_POOL_PENDING], stats.pending_bytes);
    assert_int_equal(stats.live_bytes + stats.front_bytes + stats.free_bytes + stats.pending_bytes +
                         stats.spare_bytes,
                     stats.reserved_bytes);
    assert_int_equal(stats.n_hits + stats.n_misses, stats.n_allocations);
}

struct model_block {
    uint64_t address, bytes;
};

struct model {
    struct mt_pool *pool;
    struct mt_pool_simulated *device;
    struct faulty *faulty;
    struct model_block blocks[BLOCKS];
    uint64_t live_bytes;
    uint64_t naps; /* of a thousand steps */
    uint64_t random;
    uint64_t n_refused;
};

static void give_back(struct model *model, struct model_block *block)
{
    assert_int_equal(mt_pool_block_bytes(model->pool, block->address), block->bytes);
    assert_int_equal(mt_pool_free(model->pool, block->address), MT_OK);
    model->live_bytes -= block->bytes;
    block->bytes = 0;
}

static void request(struct model *model, struct model_block *block)
{
    uint64_t shift = next_random(&model->random) % 25;
    uint64_t bytes = next_random(&model->random) % ((uint64_t)1 << shift);
    uint64_t stream = next_random(&model->random) % 4;
    unsigned hints = (unsigned)(next_random(&model->random) % 8);
    if (mt_pool_allocate_hinted(model->pool, bytes, stream, hints > 3 ? 0 : hints,
                                &block->address) != MT_OK) {
        model->n_refused++;
        return;
    }
    block->bytes = bytes ? (bytes + 511) / 512 * 512 : 512;
    model->live_bytes += block->bytes;
    for (size_t i = 0; i < BLOCKS; i++) {
        const struct model_block *other = &model->blocks[i];
        assert_true(other == block || !other->bytes ||
                    other->address + other->bytes <= block->address ||
                    block->address + block->bytes <= other->address);
    }
}

/* Sleeps and wakes, and wakes again where a call of the backend failed. */
static void nap(struct model *model)
{
    uint64_t released, address, every = model->faulty->every;
    enum mt_pool_keep keep = next_random(&model->random) % 3;
    if (mt_pool_sleep(model->pool, keep, &released) != MT_OK)
        return;
    struct mt_pool_stats stats;
    assert_int_equal(mt_pool_sleep(model->pool, keep, &released), MT_EBUSY);
    assert_int_equal(mt_pool_allocate(model->pool, 100, 0, &address), MT_EBUSY);
    for (size_t i = 0; i < BLOCKS / 10; i++) {
        struct model_block *block = &model->blocks[next_random(&model->random) % BLOCKS];
        if (block->bytes)
            give_back(model, block);
    }
    assert_int_equal(mt_pool_trim(model->pool, 0), 0);
    mt_pool_stats_read(model->pool, &stats);
    if (!every && !model->faulty->fail_at)
        assert_int_equal(stats.reserved_bytes, 0);
    uint64_t asleep_bytes = stats.reserved_bytes;
    if (mt_pool_wake(model->pool) != MT_OK) {
        mt_pool_stats_read(model->pool, &stats);
        if (!every)
            assert_int_equal(stats.reserved_bytes, asleep_bytes);
        model->faulty->every = model->faulty->fail_at = 0;
        assert_int_equal(mt_pool_allocate(model->pool, 100, 0, &address), MT_EBUSY);
        assert_int_equal(mt_pool_wake(model->pool), MT_OK);
        model->faulty->every = every;
    }
    mt_pool_stats_read(model->pool, &stats);
    assert_int_equal(stats.copied_bytes, 0);
    check(model->pool);
}

static void step(struct model *model)
{
    uint64_t what = next_random(&model->random) % 1000;
    struct model_block *block = &model->blocks[next_random(&model->random) % BLOCKS];
    model->faulty->now += 1000;
    if (next_random(&model->random) % 1000 < model->naps)
        nap(model);
    else if (what < 5)
        mt_pool_trim(model->pool, next_random(&model->random) % ((uint64_t)256 << 20));
    else if (what < 15)
        mt_pool_tick(model->pool);
    else if (what < 40)
        mt_pool_simulated_complete(model->device, what % 4);
    else if (!block->bytes)
        request(model, block);
    else if (what < 100) {
        int code = mt_pool_use_on_stream(model->pool, block->address, 1 + what % 3);
        assert_int_equal(code, MT_OK);
    } else
        give_back(model, block);
}

struct plan {
    uint64_t n, seed;
    uint64_t fail_at, every; /* calls of the backend that fail; 0: none */
    uint64_t looks;          /* steps from one look at everything to the next */
    uint64_t naps;           /* of a thousand steps */
    int is_segments;
};

/* Runs n steps over a device of 512 MiB. Returns the calls of the backend. */
__attribute__((unused)) static uint64_t run(struct plan plan)
{
    struct faulty faulty;
    struct model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    assert_int_equal(mt_pool_simulated_create((uint64_t)512 << 20, PAGE, &model->device, NULL),
                     MT_OK);
    faulty_init(&faulty, plan.is_segments ? mt_pool_simulated_segments(model->device)
                                          : mt_pool_simulated_backend(model->device));
    faulty.fail_at = plan.fail_at;
    model->faulty = &faulty;
    model->random = plan.seed;
    model->naps = plan.naps;
    struct mt_pool_options options = {.max_bytes = (uint64_t)448 << 20,
                                      .soft_bytes = (uint64_t)384 << 20,
                                      .address_bytes = (uint64_t)2 << 30,
                                      .max_age_ns = 2000000,
                                      .now_ns = now_of,
                                      .context = &faulty};
    struct mt_error error;
    if (mt_pool_create(&faulty.backend, &options, &model->pool, &error) == MT_OK) {
        faulty.every = plan.every;
        for (uint64_t i = 1; i <= plan.n; i++) {
            step(model);
            if (i % plan.looks == 0) {
                struct mt_pool_stats stats;
                check(model->pool);
                mt_pool_stats_read(model->pool, &stats);
                assert_int_equal(stats.live_bytes, model->live_bytes);
                assert_true(stats.reserved_bytes <= options.max_bytes);
            }
        }
        faulty.every = 0;
        for (size_t i = 0; i < BLOCKS; i++)
            if (model->blocks[i].bytes && i % 2)
                give_back(model, &model->blocks[i]);
        check(model->pool);
        mt_pool_destroy(model->pool);
    } else
        assert_true(plan.fail_at > 0);
    assert_int_equal(mt_pool_simulated_destroy(model->device), 0);
    free(model);
    return faulty.n_calls;
}

static __attribute__((unused)) struct mt_pool *host_pool(const struct mt_pool_options *options)
{
    struct mt_pool *pool;
    struct mt_pool_options own = options ? *options : (struct mt_pool_options){0};
    own.address_bytes = (uint64_t)16 << 30; /* a sanitizer has no room for terabytes */
    assert_int_equal(mt_pool_create(mt_pool_host_backend(), &own, &pool, NULL), MT_OK);
    return pool;
}

#endif
