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

#include <memtally/error.h>

#include "pool_model.h"

static void test_pool_keeps_its_equations_under_random_requests(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        run((struct plan){
            .n = 100000, .seed = seed, .looks = 50, .naps = 1, .is_segments = seed == 4});
}

static void test_pool_survives_a_backend_that_fails_now_and_then(void **state)
{
    (void)state;
    for (uint64_t every = 2; every <= 17; every++)
        run((struct plan){.n = 8000,
                          .seed = every,
                          .every = every,
                          .looks = 20,
                          .naps = 5,
                          .is_segments = every % 4 == 3});
    /* So seldom that a pool half wakes up, and what it takes back fails too. */
    for (uint64_t every = 37; every <= 277; every += 40)
        run((struct plan){.n = 4000, .seed = every, .every = every, .looks = 50, .naps = 20});
}

static void fail_each_call(struct plan plan)
{
    uint64_t n = run(plan);
    assert_true(n > 100);
    for (plan.fail_at = 1; plan.fail_at <= n; plan.fail_at++)
        run(plan);
}

static void test_each_call_of_the_backend_may_fail(void **state)
{
    (void)state;
    fail_each_call((struct plan){.n = 600, .seed = 7, .looks = 10, .naps = 10});
}

static void test_each_call_of_a_backend_with_segments_may_fail(void **state)
{
    (void)state;
    fail_each_call((struct plan){.n = 3000, .seed = 7, .looks = 50, .is_segments = 1});
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
    mt_pool_simulated_complete(device, 1);
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
        mt_pool_simulated_complete(device, 1);
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

/* A clock that jumps back returns nothing too early. After one that jumped on, what is free goes an
 * age later, for when in the jump it was given back is not known; then ages count as before. */
static void test_a_clock_that_jumps_takes_no_page_too_early(void **state)
{
    (void)state;
    struct faulty clock = {.now = 1000000};
    struct mt_pool_options options = {.max_age_ns = 64000, .now_ns = now_of, .context = &clock};
    struct mt_pool *pool = host_pool(&options);
    uint64_t kept, address;
    assert_int_equal(mt_pool_allocate(pool, 8 << 20, 0, &kept), MT_OK);
    for (int round = 0; round < 40; round++) {
        assert_int_equal(mt_pool_allocate(pool, 8 << 20, 0, &address), MT_OK);
        assert_int_equal(mt_pool_free(pool, address), MT_OK);
        clock.now -= 20000;
        assert_int_equal(mt_pool_tick(pool), 0);
    }
    clock.now += (uint64_t)1 << 50;
    assert_int_equal(mt_pool_tick(pool), 0);
    clock.now += 65000;
    assert_int_equal(mt_pool_tick(pool), 8 << 20);
    assert_int_equal(mt_pool_allocate(pool, 8 << 20, 0, &address), MT_OK);
    assert_int_equal(mt_pool_free(pool, address), MT_OK);
    clock.now += 1000;
    assert_int_equal(mt_pool_tick(pool), 0);
    clock.now += 70000;
    assert_int_equal(mt_pool_tick(pool), 8 << 20);
    assert_int_equal(mt_pool_free(pool, kept), MT_OK);
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
    pool = host_pool(NULL);
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

/* As many of each size as a thread may keep, which together would be 7 MiB. */
static void test_thread_keeps_no_more_than_a_mebibyte_of_small_blocks(void **state)
{
    (void)state;
    struct mt_pool *pool = host_pool(NULL);
    struct mt_pool_stats stats;
    uint64_t addresses[16];
    for (uint64_t bytes = 65536; bytes >= 4096; bytes -= 8192) {
        for (int round = 0; round < 8; round++) { /* so that room is made for all of them */
            for (int i = 0; i < 16; i++)
                assert_int_equal(mt_pool_allocate(pool, bytes, 0, &addresses[i]), MT_OK);
            for (int i = 0; i < 16; i++)
                assert_int_equal(mt_pool_free(pool, addresses[i]), MT_OK);
        }
        mt_pool_stats_read(pool, &stats);
        assert_true(stats.front_bytes <= 1 << 20);
        assert_true(stats.front_bytes >= 4096);
    }
    mt_pool_destroy(pool);
}

/* Also after they were taken away: 16 go back, and the next is kept for them. */
static void test_sixteen_large_blocks_stay_with_their_thread(void **state)
{
    (void)state;
    struct mt_pool *pool = host_pool(NULL);
    struct mt_pool_stats stats;
    uint64_t addresses[17], again[17];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 17; i++)
            assert_int_equal(
                mt_pool_allocate(pool, (uint64_t)(2 + (i & 1)) << 20, 0, &addresses[i]), MT_OK);
        for (int i = 0; i < 16; i++)
            assert_int_equal(mt_pool_free(pool, addresses[i]), MT_OK);
        mt_pool_stats_read(pool, &stats);
        assert_int_equal(stats.front_bytes, 40 << 20);
        uint64_t hits = stats.n_front_hits;
        for (int i = 15; i >= 0; i--)
            assert_int_equal(mt_pool_allocate(pool, (uint64_t)(2 + (i & 1)) << 20, 0, &again[i]),
                             MT_OK);
        assert_memory_equal(again, addresses, 16 * sizeof *again);
        mt_pool_stats_read(pool, &stats);
        assert_int_equal(stats.n_front_hits - hits, 16);
        for (int i = 0; i < 17; i++)
            assert_int_equal(mt_pool_free(pool, addresses[i]), MT_OK);
        mt_pool_stats_read(pool, &stats);
        assert_int_equal(stats.front_bytes, 2 << 20);
        mt_pool_trim(pool, 0);
        check(pool);
    }
    mt_pool_destroy(pool);
}

/* So many steps, a quarter each with pages and with segments, with calls that fail and without. */
static void run_many(uint64_t n)
{
    for (uint64_t i = 0; i < 4; i++)
        run((struct plan){.n = n / 4,
                          .seed = 1000 + i,
                          .every = i < 2 ? 0 : 9 + i,
                          .looks = 1000,
                          .naps = 1,
                          .is_segments = i % 2 != 0});
}

static void test_as_many_steps_as_were_asked_for(void **state)
{
    run_many(*(const uint64_t *)*state);
}

int main(int argc, char **argv)
{
    uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    const struct CMUnitTest many[] = {
        cmocka_unit_test_prestate(test_as_many_steps_as_were_asked_for, &n),
    };
    if (n)
        return cmocka_run_group_tests_name("pool", many, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_keeps_its_equations_under_random_requests),
        cmocka_unit_test(test_pool_survives_a_backend_that_fails_now_and_then),
        cmocka_unit_test(test_each_call_of_the_backend_may_fail),
        cmocka_unit_test(test_each_call_of_a_backend_with_segments_may_fail),
        cmocka_unit_test(test_host_memory_is_usable_and_returned_pages_read_as_zero),
        cmocka_unit_test(test_block_of_another_stream_waits_for_its_event),
        cmocka_unit_test(test_free_blocks_of_the_only_stream_join_past_an_event),
        cmocka_unit_test(test_rounding_steps_are_those_of_the_policy),
        cmocka_unit_test(test_rounding_serves_from_what_is_of_the_size_and_the_stream),
        cmocka_unit_test(test_pages_are_returned_by_age_of_a_faked_clock),
        cmocka_unit_test(test_a_clock_that_jumps_takes_no_page_too_early),
        cmocka_unit_test(test_shortage_is_told_and_what_it_frees_is_used),
        cmocka_unit_test(test_blocks_up_to_64_kib_stay_with_their_thread),
        cmocka_unit_test(test_thread_keeps_no_more_than_a_mebibyte_of_small_blocks),
        cmocka_unit_test(test_sixteen_large_blocks_stay_with_their_thread),
        cmocka_unit_test(test_large_block_that_a_thread_keeps_is_taken_before_the_pool_grows),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
