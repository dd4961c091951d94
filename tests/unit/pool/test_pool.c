/* SPDX-License-Identifier: MIT */
/* A pool against a plain model: random requests, streams, trims and ticks, with every equation and
 * every order of blocks looked at; and each call of the backend failing, one after the other. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pool/pool.h"

#define PAGE   ((uint64_t)2 << 20)
#define BLOCKS 400

/* A backend over another, whose n-th call that may fail does. */
struct faulty {
    const struct mt_pool_backend *real;
    struct mt_pool_backend backend;
    uint64_t n_calls, fail_at, every; /* 0: none */
    uint64_t now;
};

static int fails(struct faulty *faulty)
{
    faulty->n_calls++;
    return faulty->n_calls == faulty->fail_at ||
           (faulty->every && faulty->n_calls % faulty->every == 0);
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

static void faulty_init(struct faulty *faulty, const struct mt_pool_backend *real)
{
    *faulty = (struct faulty){.real = real};
    faulty->backend =
        (struct mt_pool_backend){faulty, real->page_bytes, reserve, unreserve, create, destroy,
                                 attach, enable,           detach,  record,    query,  forget};
}

static uint64_t now_of(void *context)
{
    return ((struct faulty *)context)->now;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* The order of an arena's blocks, and what lies behind them. */
static void check_arena(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t bytes[4])
{
    uint64_t at = arena->base, page = pool->backend.page_bytes;
    struct mt_pool_block *previous = NULL;
    for (struct mt_pool_block *block = arena->first; block; previous = block, block = block->next) {
        assert_int_equal(block->address, at);
        assert_true(block->size_bytes > 0);
        assert_ptr_equal(block->previous, previous);
        if (previous && previous->state == block->state)
            assert_false(block->state == MT_POOL_HOLE ||
                         (block->state == MT_POOL_FREE && previous->stream == block->stream));
        if (block->state == MT_POOL_HOLE)
            assert_true(block->address % page == 0 && block->size_bytes % page == 0);
        else
            for (uint64_t i = (at - arena->base) / page;
                 i <= (at + block->size_bytes - 1 - arena->base) / page; i++)
                assert_true(arena->pages[i]);
        bytes[block->state] += block->size_bytes;
        at += block->size_bytes;
    }
    assert_ptr_equal(arena->last, previous);
    assert_int_equal(at, arena->base + arena->top_bytes);
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
    if (mt_pool_allocate(model->pool, bytes, stream, &block->address) != MT_OK) {
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

static void step(struct model *model)
{
    uint64_t what = next_random(&model->random) % 1000;
    struct model_block *block = &model->blocks[next_random(&model->random) % BLOCKS];
    model->faulty->now += 1000;
    if (what < 5)
        mt_pool_trim(model->pool, next_random(&model->random) % ((uint64_t)256 << 20));
    else if (what < 15)
        mt_pool_tick(model->pool);
    else if (what < 40)
        mt_pool_simulated_finish(model->device, what % 4);
    else if (!block->bytes)
        request(model, block);
    else if (what < 100) {
        int code = mt_pool_use_on_stream(model->pool, block->address, 1 + what % 3);
        assert_int_equal(code, MT_OK);
    } else
        give_back(model, block);
}

/* Runs n steps over a device of 512 MiB. Returns the calls of the backend. */
static uint64_t run(uint64_t n, uint64_t seed, uint64_t fail_at, uint64_t every, uint64_t looks)
{
    struct faulty faulty;
    struct model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    assert_int_equal(mt_pool_simulated_create((uint64_t)512 << 20, PAGE, &model->device, NULL),
                     MT_OK);
    faulty_init(&faulty, mt_pool_simulated_backend(model->device));
    faulty.fail_at = fail_at;
    model->faulty = &faulty;
    model->random = seed;
    struct mt_pool_options options = {.max_bytes = (uint64_t)448 << 20,
                                      .soft_bytes = (uint64_t)384 << 20,
                                      .address_bytes = (uint64_t)2 << 30,
                                      .max_age_ns = 2000000,
                                      .now_ns = now_of,
                                      .context = &faulty};
    struct mt_error error;
    if (mt_pool_create(&faulty.backend, &options, &model->pool, &error) == MT_OK) {
        faulty.every = every;
        for (uint64_t i = 1; i <= n; i++) {
            step(model);
            if (i % looks == 0) {
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
        assert_true(fail_at > 0);
    assert_int_equal(mt_pool_simulated_destroy(model->device), 0);
    free(model);
    return faulty.n_calls;
}

static void test_pool_keeps_its_equations_under_random_requests(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        run(100000, seed, 0, 0, 50);
}

static void test_pool_survives_a_backend_that_fails_now_and_then(void **state)
{
    (void)state;
    for (uint64_t every = 2; every <= 17; every++)
        run(8000, every, 0, every, 20);
}

static void test_each_call_of_the_backend_may_fail(void **state)
{
    (void)state;
    uint64_t n = run(600, 7, 0, 0, 10);
    assert_true(n > 100);
    for (uint64_t at = 1; at <= n; at++)
        run(600, 7, at, 0, 10);
}

static struct mt_pool *host_pool(const struct mt_pool_options *options)
{
    struct mt_pool *pool;
    assert_int_equal(mt_pool_create(mt_pool_host_backend(), options, &pool, NULL), MT_OK);
    return pool;
}

static void test_host_memory_is_usable_and_returned_pages_read_as_zero(void **state)
{
    (void)state;
    struct mt_pool *pool = host_pool(NULL);
    uint64_t address;
    assert_int_equal(mt_pool_allocate(pool, 5 << 20, 0, &address), MT_OK);
    memset((void *)(uintptr_t)address, 7, 5 << 20);
    assert_int_equal(mt_pool_allocate(pool, 5 << 20, 1, &address), MT_EARG);
    assert_int_equal(mt_pool_free(pool, address), MT_OK);
    assert_int_equal(mt_pool_free(pool, address), MT_ENOTFOUND);
    assert_int_equal(mt_pool_trim(pool, 0), 6 << 20);
    assert_int_equal(mt_pool_allocate(pool, 5 << 20, 0, &address), MT_OK);
    assert_int_equal(((char *)(uintptr_t)address)[4 << 20], 0);
    check(pool);
    mt_pool_destroy(pool);
}

static void test_block_of_another_stream_waits_for_its_event(void **state)
{
    (void)state;
    struct mt_pool_simulated *device;
    assert_int_equal(mt_pool_simulated_create(64 << 20, PAGE, &device, NULL), MT_OK);
    struct mt_pool *pool;
    assert_int_equal(mt_pool_create(mt_pool_simulated_backend(device), NULL, &pool, NULL), MT_OK);
    uint64_t first, again, other, late;
    assert_int_equal(mt_pool_allocate(pool, 4 << 20, 1, &first), MT_OK);
    assert_int_equal(mt_pool_free(pool, first), MT_OK);
    assert_int_equal(mt_pool_allocate(pool, 4 << 20, 1, &again), MT_OK);
    assert_int_equal(again, first); /* in the order of its own stream */
    assert_int_equal(mt_pool_free(pool, again), MT_OK);
    assert_int_equal(mt_pool_allocate(pool, 4 << 20, 2, &other), MT_OK);
    assert_int_not_equal(other, first); /* the work of stream 1 may go on */
    mt_pool_simulated_finish(device, 1);
    assert_int_equal(mt_pool_allocate(pool, 4 << 20, 2, &late), MT_OK);
    assert_int_equal(late, first);
    check(pool);
    mt_pool_destroy(pool);
    assert_int_equal(mt_pool_simulated_destroy(device), 0);
}

/* An event draws no border between what is given back before it and after. */
static void test_free_blocks_of_the_only_stream_join_past_an_event(void **state)
{
    (void)state;
    struct mt_pool_simulated *device;
    assert_int_equal(mt_pool_simulated_create(64 << 20, PAGE, &device, NULL), MT_OK);
    struct mt_pool *pool;
    assert_int_equal(mt_pool_create(mt_pool_simulated_backend(device), NULL, &pool, NULL), MT_OK);
    uint64_t blocks[3], missed, both;
    for (int i = 0; i < 3; i++)
        assert_int_equal(mt_pool_allocate(pool, 4 << 20, 1, &blocks[i]), MT_OK);
    assert_int_equal(mt_pool_free(pool, blocks[0]), MT_OK);
    assert_int_equal(mt_pool_allocate(pool, 6 << 20, 1, &missed), MT_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mt_pool_trim(pool, 18 << 20), 0); /* it asks events too */
        mt_pool_simulated_finish(device, 1);
    }
    assert_int_equal(mt_pool_free(pool, blocks[1]), MT_OK);
    assert_int_equal(mt_pool_allocate(pool, 8 << 20, 1, &both), MT_OK);
    assert_int_equal(both, blocks[0]);
    check(pool);
    mt_pool_destroy(pool);
    assert_int_equal(mt_pool_simulated_destroy(device), 0);
}

static void test_rounding_steps_are_those_of_the_policy(void **state)
{
    (void)state;
    static const uint64_t sizes[][2] = {{0, 100000},
                                        {1, 100000},
                                        {100000, 100000},
                                        {100001, 200000},
                                        {999999, 1000000},
                                        {1000000, 1000000},
                                        {1000001, 2000000},
                                        {9999999, 10000000},
                                        {10000001, 20000000},
                                        {95000000, 100000000},
                                        {100000001, 150000000},
                                        {1234567890, 1250000000}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(mt_pool_rounded_bytes(sizes[i][0]), sizes[i][1]);
}

static void test_rounding_serves_from_what_is_of_the_size_and_the_stream(void **state)
{
    (void)state;
    struct mt_pool_simulated *device;
    struct mt_pool *pool;
    struct mt_pool_rounding *rounding;
    struct mt_pool_options options = {.no_front = 1};
    uint64_t first, again, other, large, n_hits, n_misses;
    assert_int_equal(mt_pool_simulated_create(64 << 20, PAGE, &device, NULL), MT_OK);
    assert_int_equal(mt_pool_create(mt_pool_simulated_backend(device), &options, &pool, NULL),
                     MT_OK);
    assert_int_equal(mt_pool_rounding_create(pool, &rounding), MT_OK);
    assert_int_equal(mt_pool_rounding_allocate(rounding, 7100000, 1, &first), MT_OK);
    assert_int_equal(mt_pool_rounding_free(rounding, first), MT_OK);
    assert_int_equal(mt_pool_rounding_allocate(rounding, 7900000, 1, &again), MT_OK);
    assert_int_equal(again, first); /* both are of 8 MB */
    assert_int_equal(mt_pool_rounding_free(rounding, again), MT_OK);
    assert_int_equal(mt_pool_rounding_allocate(rounding, 7900000, 2, &other), MT_OK);
    assert_int_not_equal(other, first);
    assert_int_equal(mt_pool_rounding_free(rounding, other), MT_OK);
    assert_int_equal(mt_pool_rounding_allocate(rounding, 6900000, 1, &other), MT_OK);
    assert_int_not_equal(other, first);
    /* 60 of 64 MiB: what is kept of other sizes makes room. */
    assert_int_equal(mt_pool_rounding_free(rounding, other), MT_OK);
    assert_int_equal(mt_pool_rounding_allocate(rounding, 60000000, 1, &large), MT_OK);
    mt_pool_rounding_count(rounding, &n_hits, &n_misses);
    assert_int_equal(n_hits, 1);
    assert_int_equal(n_misses, 4);
    assert_int_equal(mt_pool_rounding_free(rounding, large + 512), MT_ENOTFOUND);
    mt_pool_rounding_destroy(rounding);
    check(pool);
    mt_pool_destroy(pool);
    assert_int_equal(mt_pool_simulated_destroy(device), 0);
}

static void test_pages_are_returned_by_age_of_a_faked_clock(void **state)
{
    (void)state;
    struct faulty clock = {.now = 1000};
    struct mt_pool_options options = {.max_age_ns = 64000, .now_ns = now_of, .context = &clock};
    struct mt_pool *pool = host_pool(&options);
    uint64_t address;
    assert_int_equal(mt_pool_allocate(pool, 8 << 20, 0, &address), MT_OK);
    clock.now += 100000;
    assert_int_equal(mt_pool_tick(pool), 0); /* nothing is free */
    assert_int_equal(mt_pool_free(pool, address), MT_OK);
    clock.now += 1000;
    assert_int_equal(mt_pool_tick(pool), 0);
    clock.now += 63000;
    assert_int_equal(mt_pool_tick(pool), 0);
    clock.now += 1000;
    assert_int_equal(mt_pool_tick(pool), 8 << 20);
    check(pool);
    mt_pool_destroy(pool);
}

struct shortage {
    struct mt_pool *pool;
    uint64_t address;
    unsigned calls;
    _Atomic int turn;
};

static int give_up_one(void *context, const struct mt_pool_shortage *told)
{
    struct shortage *shortage = context;
    shortage->calls++;
    assert_int_equal(told->requested_bytes, 8 << 20);
    assert_int_equal(told->reserved_bytes, 12 << 20);
    return mt_pool_free(shortage->pool, shortage->address) == MT_OK;
}

static void test_shortage_is_told_and_what_it_frees_is_used(void **state)
{
    (void)state;
    struct shortage shortage = {0};
    struct mt_pool_options options = {
        .max_bytes = 12 << 20, .on_shortage = give_up_one, .context = &shortage};
    shortage.pool = host_pool(&options);
    options.now_ns = NULL;
    uint64_t kept, address;
    assert_int_equal(mt_pool_allocate(shortage.pool, 4 << 20, 0, &shortage.address), MT_OK);
    assert_int_equal(mt_pool_allocate(shortage.pool, 4 << 20, 0, &kept), MT_OK);
    assert_int_equal(mt_pool_allocate(shortage.pool, 4 << 20, 0, &address), MT_OK);
    assert_int_equal(mt_pool_free(shortage.pool, address), MT_OK);
    /* 4 MiB are free at the end and 4 at the beginning: pages move. */
    assert_int_equal(mt_pool_allocate(shortage.pool, 8 << 20, 0, &address), MT_OK);
    assert_int_equal(shortage.calls, 1);
    struct mt_pool_stats stats;
    mt_pool_stats_read(shortage.pool, &stats);
    assert_int_equal(stats.reserved_bytes, 12 << 20);
    assert_int_equal(stats.n_pages_moved, 2);
    check(shortage.pool);
    mt_pool_destroy(shortage.pool);
}

static void *keep_one(void *context)
{
    struct shortage *shortage = context;
    uint64_t address;
    assert_int_equal(mt_pool_allocate(shortage->pool, 8 << 20, 0, &address), MT_OK);
    assert_int_equal(mt_pool_free(shortage->pool, address), MT_OK);
    atomic_store(&shortage->turn, 1);
    while (atomic_load(&shortage->turn) == 1)
        sched_yield();
    return NULL;
}

/* 64 KiB is the largest that stays with its thread by its size; 16 of each size do, and 1 MiB. */
static void test_blocks_up_to_64_kib_stay_with_their_thread(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 512, 513, 4096, 65535, 65536};
    struct mt_pool *pool;
    uint64_t addresses[20], again[20];
    assert_int_equal(mt_pool_create(mt_pool_host_backend(), NULL, &pool, NULL), MT_OK);
    uint64_t hits = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int n = 0; n < 20; n++)
            assert_int_equal(mt_pool_allocate(pool, sizes[i], 0, &addresses[n]), MT_OK);
        for (int n = 0; n < 8; n++)
            assert_int_equal(mt_pool_free(pool, addresses[n]), MT_OK);
        for (int n = 7; n >= 0; n--)
            assert_int_equal(mt_pool_allocate(pool, sizes[i], 0, &again[n]), MT_OK);
        assert_memory_equal(again, addresses, 8 * sizeof *again);
        for (int n = 0; n < 20; n++)
            assert_int_equal(mt_pool_free(pool, addresses[n]), MT_OK);
        struct mt_pool_stats stats;
        mt_pool_stats_read(pool, &stats);
        assert_true(stats.n_front_hits >= hits + 8);
        assert_true(stats.front_bytes <= 1 << 20);
        assert_int_equal(stats.live_bytes, 0);
        assert_int_equal(stats.n_frees, stats.n_allocations);
        hits = stats.n_front_hits;
        assert_int_equal(mt_pool_free(pool, addresses[19]), MT_ENOTFOUND); /* it has it */
    }
    mt_pool_destroy(pool);
}

static void test_large_block_that_a_thread_keeps_is_taken_before_the_pool_grows(void **state)
{
    (void)state;
    struct mt_pool_options options = {.max_bytes = 8 << 20};
    struct shortage shortage = {.pool = host_pool(&options)};
    struct mt_pool_stats stats;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, keep_one, &shortage), 0);
    while (!atomic_load(&shortage.turn))
        sched_yield();
    mt_pool_stats_read(shortage.pool, &stats);
    assert_int_equal(stats.front_bytes, 8 << 20);
    uint64_t address;
    assert_int_equal(mt_pool_allocate(shortage.pool, 4 << 20, 0, &address), MT_OK);
    assert_int_equal(mt_pool_free(shortage.pool, address), MT_OK);
    assert_int_equal(mt_pool_free(shortage.pool, address), MT_ENOTFOUND);
    assert_int_equal(mt_pool_trim(shortage.pool, 0), 8 << 20);
    atomic_store(&shortage.turn, 2);
    pthread_join(thread, NULL);
    mt_pool_stats_read(shortage.pool, &stats);
    assert_int_equal(stats.front_bytes, 0);
    assert_int_equal(stats.n_allocations, stats.n_frees);
    check(shortage.pool);
    mt_pool_destroy(shortage.pool);
}

#define THREADS 8

static void *take_and_give(void *context)
{
    struct mt_pool *pool = context;
    uint64_t random = (uint64_t)(uintptr_t)&random, held[64] = {0};
    for (int i = 0; i < 20000; i++) {
        uint64_t *slot = &held[next_random(&random) % 64];
        mt_pool_free(pool, *slot);
        *slot = 0;
        if (mt_pool_allocate(pool, next_random(&random) % 100000, 0, slot) == MT_OK)
            *(uint64_t *)(uintptr_t)*slot = *slot;
        if (i % 4096 == 0)
            mt_pool_trim(pool, 16 << 20);
    }
    for (int i = 0; i < 64; i++) {
        if (held[i])
            assert_int_equal(*(uint64_t *)(uintptr_t)held[i], held[i]);
        mt_pool_free(pool, held[i]);
    }
    return NULL;
}

static void test_threads_lose_nothing(void **state)
{
    (void)state;
    struct mt_pool *pool = host_pool(NULL);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, pool), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    struct mt_pool_stats stats;
    mt_pool_stats_read(pool, &stats);
    assert_int_equal(stats.live_bytes, 0);
    assert_int_equal(stats.front_bytes, 0); /* threads that end give back what they kept */
    assert_int_equal(stats.n_allocations, stats.n_frees);
    check(pool);
    mt_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_keeps_its_equations_under_random_requests),
        cmocka_unit_test(test_pool_survives_a_backend_that_fails_now_and_then),
        cmocka_unit_test(test_each_call_of_the_backend_may_fail),
        cmocka_unit_test(test_host_memory_is_usable_and_returned_pages_read_as_zero),
        cmocka_unit_test(test_block_of_another_stream_waits_for_its_event),
        cmocka_unit_test(test_free_blocks_of_the_only_stream_join_past_an_event),
        cmocka_unit_test(test_rounding_steps_are_those_of_the_policy),
        cmocka_unit_test(test_rounding_serves_from_what_is_of_the_size_and_the_stream),
        cmocka_unit_test(test_pages_are_returned_by_age_of_a_faked_clock),
        cmocka_unit_test(test_shortage_is_told_and_what_it_frees_is_used),
        cmocka_unit_test(test_blocks_up_to_64_kib_stay_with_their_thread),
        cmocka_unit_test(test_large_block_that_a_thread_keeps_is_taken_before_the_pool_grows),
        cmocka_unit_test(test_threads_lose_nothing),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
