/* SPDX-License-Identifier: MIT */
/* Sleep and wake, hints, and memory in segments, each by what a caller sees of it. */
#include "pool_model.h"

#include <memtally/error.h>

static uint64_t take_bytes(struct mt_pool *pool, uint64_t bytes, unsigned hints)
{
    uint64_t address;
    assert_int_equal(mt_pool_allocate_hinted(pool, bytes, 0, hints, &address), MT_OK);
    return address;
}

static unsigned char *at(uint64_t address)
{
    return (unsigned char *)(uintptr_t)address;
}

/* What is kept is there again at its address, and what is not reads as fresh pages do. */
static void test_blocks_keep_their_addresses_and_what_was_asked_for(void **state)
{
    (void)state;
    static const enum mt_pool_keep keeps[] = {MT_POOL_KEEP_NOTHING, MT_POOL_KEEP_LONG,
                                              MT_POOL_KEEP_ALL};
    for (int i = 0; i < 3; i++) {
        struct mt_pool *pool = host_pool(NULL);
        struct mt_pool_stats stats;
        uint64_t released, refused;
        uint64_t weights = take_bytes(pool, 3 << 20, MT_POOL_LONG_LIVED);
        uint64_t work = take_bytes(pool, 5 << 20, 0);
        uint64_t small = take_bytes(pool, 1000, 0);
        uint64_t gone = take_bytes(pool, 8 << 20, 0);
        memset(at(weights), 1, 3 << 20);
        memset(at(work), 2, 5 << 20);
        memset(at(small), 3, 1000);
        assert_int_equal(mt_pool_free(pool, gone), MT_OK);
        assert_int_equal(mt_pool_sleep(pool, keeps[i], &released), MT_OK);
        mt_pool_stats_read(pool, &stats);
        assert_int_equal(stats.reserved_bytes, 0);
        assert_int_equal(released, (4 + 14 + 2) << 20); /* the weights', the large, the small */
        assert_int_equal(stats.copied_bytes, i == 0 ? 0 : (i == 1 ? 4 : 4 + 6 + 2) << 20);
        assert_int_equal(mt_pool_allocate(pool, 1, 0, &refused), MT_EBUSY);
        assert_int_equal(mt_pool_wake(pool), MT_OK);
        assert_int_equal(at(weights)[(3 << 20) - 1], i >= 1 ? 1 : 0);
        assert_int_equal(at(work)[4 << 20], i == 2 ? 2 : 0);
        assert_int_equal(at(small)[999], i == 2 ? 3 : 0);
        mt_pool_stats_read(pool, &stats);
        assert_int_equal(stats.reserved_bytes, (4 + 6 + 2) << 20);
        check(pool);
        assert_int_equal(mt_pool_free(pool, weights), MT_OK);
        assert_int_equal(mt_pool_wake(pool), MT_OK); /* it is awake: nothing happens */
        mt_pool_destroy(pool);
    }
}

/* A block that the thread kept before is not handed out while there is nothing behind it. */
static void test_thread_gets_nothing_of_its_own_while_the_pool_sleeps(void **state)
{
    (void)state;
    struct mt_pool *pool = host_pool(NULL);
    uint64_t held = take_bytes(pool, 1000, 0), kept = take_bytes(pool, 1000, 0), again, released;
    assert_int_equal(mt_pool_sleep(pool, MT_POOL_KEEP_NOTHING, &released), MT_OK);
    assert_int_equal(mt_pool_free(pool, kept), MT_OK);
    assert_int_equal(mt_pool_allocate(pool, 1000, 0, &again), MT_EBUSY);
    assert_int_equal(mt_pool_wake(pool), MT_OK);
    assert_int_equal(mt_pool_allocate(pool, 1000, 0, &again), MT_OK);
    assert_int_equal(again, kept);
    assert_int_equal(mt_pool_free(pool, held), MT_OK);
    assert_int_equal(mt_pool_sleep(pool, MT_POOL_KEEP_ALL, &released), MT_OK);
    mt_pool_destroy(pool); /* asleep, with copies */
}

static void *ask(void *pool)
{
    uint64_t address;
    return mt_pool_allocate(pool, 1000, 0, &address) == MT_EBUSY ? pool : NULL;
}

/* A thread that never had a block of any pool. */
static void test_new_thread_gets_nothing_while_the_pool_sleeps(void **state)
{
    (void)state;
    struct mt_pool *pool = host_pool(NULL);
    uint64_t released;
    pthread_t thread;
    void *answer;
    assert_int_equal(mt_pool_sleep(pool, MT_POOL_KEEP_NOTHING, &released), MT_OK);
    assert_int_equal(pthread_create(&thread, NULL, ask, pool), 0);
    assert_int_equal(pthread_join(thread, &answer), 0);
    assert_ptr_equal(answer, pool);
    mt_pool_destroy(pool);
}

static void test_work_of_a_stream_is_waited_for_before_memory_goes(void **state)
{
    (void)state;
    struct mt_pool_simulated *device;
    struct faulty faulty;
    struct mt_pool *pool;
    uint64_t first, released;
    assert_int_equal(mt_pool_simulated_create(64 << 20, PAGE, &device, NULL), MT_OK);
    faulty_init(&faulty, mt_pool_simulated_backend(device));
    assert_int_equal(mt_pool_create(&faulty.backend, NULL, &pool, NULL), MT_OK);
    assert_int_equal(mt_pool_allocate(pool, 4 << 20, 1, &first), MT_OK);
    assert_int_equal(mt_pool_free(pool, first), MT_OK);
    faulty.fail_at =
        faulty.n_calls + 1; /* no event can be recorded, as while a graph is captured */
    assert_int_equal(mt_pool_sleep(pool, MT_POOL_KEEP_NOTHING, &released), MT_EBUSY);
    assert_int_equal(mt_pool_sleep(pool, MT_POOL_KEEP_NOTHING, &released), MT_OK);
    assert_int_equal(released, 4 << 20);
    mt_pool_destroy(pool);
    assert_int_equal(mt_pool_simulated_destroy(device), 0);
}

/* Long-lived blocks that come between others do not part what is free: 40 MiB fit in one piece. */
static void test_long_lived_blocks_lie_apart(void **state)
{
    (void)state;
    for (int hinted = 0; hinted < 2; hinted++) {
        struct mt_pool_simulated *device;
        struct mt_pool_options options = {.max_bytes = 64 << 20};
        struct mt_pool *pool;
        struct mt_pool_stats stats;
        uint64_t passing[10], address;
        assert_int_equal(mt_pool_simulated_create(64 << 20, PAGE, &device, NULL), MT_OK);
        assert_int_equal(mt_pool_create(mt_pool_simulated_backend(device), &options, &pool, NULL),
                         MT_OK);
        for (int i = 0; i < 10; i++) {
            passing[i] = take_bytes(pool, 4 << 20, 0);
            take_bytes(pool, 2 << 20, hinted ? MT_POOL_LONG_LIVED : 0);
        }
        for (int i = 0; i < 10; i++)
            assert_int_equal(mt_pool_free(pool, passing[i]), MT_OK);
        assert_int_equal(mt_pool_allocate(pool, 40 << 20, 0, &address), MT_OK);
        mt_pool_stats_read(pool, &stats);
        assert_int_equal(stats.n_pages_moved, hinted ? 0 : 18); /* 2 of 20 may be new */
        check(pool);
        mt_pool_destroy(pool);
        assert_int_equal(mt_pool_simulated_destroy(device), 0);
    }
}

static int count_call(void *context, const struct mt_pool_shortage *shortage)
{
    (void)shortage;
    ++*(unsigned *)context;
    return 0;
}

static void test_request_that_yields_leaves_what_is_past_the_soft_limit(void **state)
{
    (void)state;
    unsigned n_calls = 0;
    struct mt_pool_options options = {.max_bytes = 16 << 20,
                                      .soft_bytes = 8 << 20,
                                      .on_shortage = count_call,
                                      .context = &n_calls};
    struct mt_pool *pool = host_pool(&options);
    uint64_t address;
    uint64_t first = take_bytes(pool, 6 << 20, MT_POOL_YIELDING);
    assert_int_equal(mt_pool_allocate_hinted(pool, 6 << 20, 0, MT_POOL_YIELDING, &address),
                     MT_ELIMIT);
    assert_int_equal(n_calls, 0);
    take_bytes(pool, 6 << 20, 0);
    assert_int_equal(mt_pool_free(pool, first), MT_OK);
    take_bytes(pool, 6 << 20, MT_POOL_YIELDING); /* what is free is for it too */
    assert_int_equal(mt_pool_allocate(pool, 6 << 20, 0, &address), MT_ELIMIT);
    assert_int_equal(n_calls, 1);
    assert_int_equal(mt_pool_allocate_hinted(pool, 1, 0, 4, &address), MT_EARG);
    mt_pool_destroy(pool);
}

/* Whole segments go back: to make room below a limit, by age, and when the pool is trimmed. */
static void test_segments_go_back_whole(void **state)
{
    (void)state;
    struct mt_pool_simulated *device;
    struct mt_pool_options options = {.max_bytes = 16 << 20};
    struct mt_pool *pool;
    struct mt_pool_stats stats;
    uint64_t released;
    assert_int_equal(mt_pool_simulated_create(64 << 20, PAGE, &device, NULL), MT_OK);
    assert_int_equal(mt_pool_create(mt_pool_simulated_segments(device), &options, &pool, NULL),
                     MT_OK);
    uint64_t first = take_bytes(pool, 3 << 20, 0), second = take_bytes(pool, 7 << 20, 0);
    uint64_t small = take_bytes(pool, 100, 0);
    mt_pool_stats_read(pool, &stats);
    assert_int_equal(stats.reserved_bytes, (4 + 8 + 2) << 20);
    assert_int_equal(mt_pool_sleep(pool, MT_POOL_KEEP_NOTHING, &released), MT_EUNSUPPORTED);
    assert_int_equal(mt_pool_free(pool, first), MT_OK);
    assert_int_equal(mt_pool_trim(pool, 14 << 20), 0);
    uint64_t third = take_bytes(pool, 5 << 20, 0); /* 6 MiB where 4 of 16 are free: they go back */
    mt_pool_stats_read(pool, &stats);
    assert_int_equal(stats.reserved_bytes, (6 + 8 + 2) << 20);
    assert_int_equal(stats.n_pages_returned, 2);
    uint64_t refused;
    assert_int_equal(mt_pool_allocate(pool, 17 << 20, 0, &refused), MT_ELIMIT);
    assert_int_equal(mt_pool_free(pool, second), MT_OK);
    second = take_bytes(pool, 1 << 21, 0);
    assert_int_equal(mt_pool_free(pool, third), MT_OK);
    assert_int_equal(mt_pool_trim(pool, 0),
                     6 << 20); /* 6 MiB of the other are free, but not whole */
    check(pool);
    assert_int_equal(mt_pool_free(pool, second), MT_OK);
    assert_int_equal(mt_pool_free(pool, small), MT_OK);
    assert_int_equal(mt_pool_trim(pool, 0), 10 << 20);
    mt_pool_destroy(pool);
    assert_int_equal(mt_pool_simulated_destroy(device), 0);
}

/* 12 of 16 MiB, of which 8 are in a free segment that is too small. */
static void test_free_segments_go_back_where_the_device_has_no_more(void **state)
{
    (void)state;
    struct mt_pool_simulated *device;
    struct mt_pool *pool;
    assert_int_equal(mt_pool_simulated_create(16 << 20, PAGE, &device, NULL), MT_OK);
    assert_int_equal(mt_pool_create(mt_pool_simulated_segments(device), NULL, &pool, NULL), MT_OK);
    uint64_t first = take_bytes(pool, 8 << 20, 0);
    assert_int_equal(mt_pool_free(pool, first), MT_OK);
    take_bytes(pool, 12 << 20, 0);
    uint64_t refused;
    assert_int_equal(mt_pool_allocate(pool, 6 << 20, 0, &refused), MT_ENOMEM);
    check(pool);
    mt_pool_destroy(pool);
    assert_int_equal(mt_pool_simulated_destroy(device), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_keep_their_addresses_and_what_was_asked_for),
        cmocka_unit_test(test_thread_gets_nothing_of_its_own_while_the_pool_sleeps),
        cmocka_unit_test(test_new_thread_gets_nothing_while_the_pool_sleeps),
        cmocka_unit_test(test_work_of_a_stream_is_waited_for_before_memory_goes),
        cmocka_unit_test(test_long_lived_blocks_lie_apart),
        cmocka_unit_test(test_request_that_yields_leaves_what_is_past_the_soft_limit),
        cmocka_unit_test(test_segments_go_back_whole),
        cmocka_unit_test(test_free_segments_go_back_where_the_device_has_no_more),
    };
    return cmocka_run_group_tests_name("pool_sleep", tests, NULL, NULL);
}
