/* SPDX-License-Identifier: MIT */
/* A pool and several threads: blocks that one takes and another gives back. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <memtally/error.h>

#include "pool/front.h"
#include "pool_model.h"

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

/* A block that changes hands while figures are added up may count with both. */
static void test_what_is_counted_twice_leaves_no_less_than_nothing_live(void **state)
{
    (void)state;
    struct mt_pool *pool = host_pool(NULL);
    struct mt_pool_stats stats;
    uint64_t address;
    assert_int_equal(mt_pool_allocate(pool, 4096, 0, &address), MT_OK);
    assert_int_equal(mt_pool_free(pool, address), MT_OK);
    pool->fronts->youngest_units = 2 * 4096 / MT_POOL_ALIGN;
    mt_pool_stats_read(pool, &stats);
    assert_int_equal(stats.front_bytes, 2 * 4096);
    assert_int_equal(stats.live_bytes, 0);
    pool->fronts->youngest_units = 4096 / MT_POOL_ALIGN;
    mt_pool_destroy(pool);
}

#define PASSED 3000

struct passing {
    struct mt_pool *pool;
    uint64_t blocks[PASSED];
    uint64_t large[24];
};

static void *give_all_back(void *context)
{
    struct passing *passing = context;
    for (int i = 0; i < PASSED; i++)
        assert_int_equal(mt_pool_free(passing->pool, passing->blocks[i]), MT_OK);
    for (int i = 0; i < 24; i++)
        assert_int_equal(mt_pool_free(passing->pool, passing->large[i]), MT_OK);
    return NULL;
}

static void pass_on(struct passing *passing)
{
    pthread_t thread;
    for (int i = 0; i < PASSED; i++)
        assert_int_equal(mt_pool_allocate(passing->pool, 4096, 0, &passing->blocks[i]), MT_OK);
    for (int i = 0; i < 24; i++)
        assert_int_equal(mt_pool_allocate(passing->pool, 2 << 20, 0, &passing->large[i]), MT_OK);
    assert_int_equal(pthread_create(&thread, NULL, give_all_back, passing), 0);
    pthread_join(thread, NULL);
}

#define ON_THEIR_WAY 224 /* sixteen lots of 14 */
#define LARGE        14  /* of the first 16, when the next one comes */

/* They are taken without looking for a block, none twice, and all of them before the pool grows. */
static void test_blocks_of_a_thread_that_only_gives_go_to_one_that_asks(void **state)
{
    (void)state;
    struct mt_pool_options options = {.max_bytes = 64 << 20};
    struct passing passing = {.pool = host_pool(&options)};
    struct mt_pool_stats stats, after;
    uint64_t address, large[LARGE];
    pass_on(&passing);
    mt_pool_stats_read(passing.pool, &stats);
    assert_int_equal(stats.front_bytes, ON_THEIR_WAY * 4096 + LARGE * (2 << 20));
    assert_int_equal(stats.live_bytes, 0);
    assert_int_equal(mt_pool_free(passing.pool, passing.blocks[2000]), MT_ENOTFOUND);
    for (int i = 0; i < ON_THEIR_WAY; i++) {
        assert_int_equal(mt_pool_allocate(passing.pool, 4096, 0, &passing.blocks[i]), MT_OK);
        *(uint64_t *)(uintptr_t)passing.blocks[i] = (uint64_t)i;
    }
    for (int i = 0; i < LARGE; i++) {
        assert_int_equal(mt_pool_allocate(passing.pool, 2 << 20, 0, &large[i]), MT_OK);
        *(uint64_t *)(uintptr_t)large[i] = (uint64_t)(1000 + i);
    }
    mt_pool_stats_read(passing.pool, &after);
    assert_int_equal(after.n_front_hits - stats.n_front_hits, ON_THEIR_WAY + LARGE);
    assert_int_equal(after.front_bytes, 0);
    for (int i = 0; i < ON_THEIR_WAY; i++) {
        assert_int_equal(*(uint64_t *)(uintptr_t)passing.blocks[i], i);
        mt_pool_free(passing.pool, passing.blocks[i]);
    }
    for (int i = 0; i < LARGE; i++) {
        assert_int_equal(*(uint64_t *)(uintptr_t)large[i], 1000 + i);
        mt_pool_free(passing.pool, large[i]);
    }
    pass_on(&passing);
    assert_int_equal(mt_pool_allocate(passing.pool, 64 << 20, 0, &address), MT_OK);
    mt_pool_free(passing.pool, address);
    check(passing.pool);
    mt_pool_destroy(passing.pool);
}

/* A thread has room for a size only where it keeps blocks of it, or some are on their way. */
static void test_a_size_of_which_none_is_on_its_way_gets_no_room(void **state)
{
    (void)state;
    struct passing passing = {.pool = host_pool(NULL)};
    uint64_t other, same;
    pass_on(&passing);
    assert_int_equal(mt_pool_allocate(passing.pool, 8192, 0, &other), MT_OK);
    for (struct mt_pool_front *front = passing.pool->fronts; front; front = front->next)
        assert_int_equal(front->room[8192 / MT_POOL_ALIGN - 1], 0);
    assert_int_equal(mt_pool_allocate(passing.pool, 4096, 0, &same), MT_OK);
    mt_pool_free(passing.pool, other);
    mt_pool_free(passing.pool, same);
    check(passing.pool);
    mt_pool_destroy(passing.pool);
}

#define LOTS      (128 * 16 + 4)
#define LOT_WORDS 16

/* A lot's first word says how many blocks it has: those that have `was` of them say `is` now, but
 * every other one. How many there were. */
static unsigned change_lots(struct mt_pool *pool, uint64_t was, uint64_t is)
{
    _Atomic uint64_t *words = (_Atomic uint64_t *)pool->transfer;
    unsigned n = 0;
    for (size_t i = 0; i < LOTS * LOT_WORDS; i += LOT_WORDS)
        if (words[i] == was && n++ % 2 == 0)
            words[i] = is;
    return n;
}

static void test_a_child_of_fork_has_what_other_threads_kept_and_moved(void **state)
{
    (void)state;
    struct mt_pool_options options = {.max_bytes = 64 << 20};
    struct passing passing = {.pool = host_pool(&options)};
    struct mt_pool_stats stats;
    uint64_t address, own;
    int status;
    pass_on(&passing);
    assert_int_equal(mt_pool_allocate(passing.pool, 4096, 0, &own), MT_OK); /* and keeps 13 */
    /* All ones are a thread's that has the lot to itself, and here is none. */
    assert_int_equal(change_lots(passing.pool, 14, UINT64_MAX), 16);
    mt_pool_front_lock_all();
    pid_t child = fork();
    if (child == 0) {
        mt_pool_front_take_over_all();
        mt_pool_stats_read(passing.pool, &stats);
        if (stats.front_bytes || stats.live_bytes != 4096 ||
            change_lots(passing.pool, UINT64_MAX, 0))
            _exit(1);
        mt_pool_free(passing.pool, own);
        check(passing.pool);
        _exit(mt_pool_allocate(passing.pool, 60 << 20, 0, &address) == MT_OK ? 0 : 2);
    }
    mt_pool_front_unlock_all();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    mt_pool_destroy(passing.pool);
}

#define ON_WAY 64

struct post {
    struct mt_pool *pool;
    _Atomic uint64_t slots[ON_WAY]; /* 0: empty */
    _Atomic int n_to_take;
};

static void *send(void *context)
{
    struct post *post = context;
    uint64_t random = (uint64_t)(uintptr_t)&random;
    for (int i = 0; i < 20000; i++) {
        uint64_t bytes = next_random(&random) % 16 ? 512 * (1 + next_random(&random) % 3) : 3 << 20;
        uint64_t none = 0, address;
        assert_int_equal(mt_pool_allocate(post->pool, bytes, 0, &address), MT_OK);
        *(uint64_t *)(uintptr_t)address = address;
        while (!atomic_compare_exchange_weak(&post->slots[i % ON_WAY], &none, address)) {
            none = 0;
            sched_yield();
        }
    }
    return NULL;
}

static void *receive(void *context)
{
    struct post *post = context;
    while (atomic_fetch_sub(&post->n_to_take, 1) > 0) {
        uint64_t address = 0;
        for (unsigned i = 0; !address; i++) {
            address = atomic_exchange(&post->slots[i % ON_WAY], 0);
            if (!address && i % ON_WAY == 0)
                sched_yield();
        }
        assert_int_equal(*(uint64_t *)(uintptr_t)address, address);
        assert_int_equal(mt_pool_free(post->pool, address), MT_OK);
    }
    return NULL;
}

static void test_threads_that_pass_blocks_on_lose_nothing(void **state)
{
    (void)state;
    struct post post = {.pool = host_pool(NULL), .n_to_take = 40000};
    struct mt_pool_stats stats;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? send : receive, &post), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    mt_pool_trim(post.pool, 0);
    mt_pool_stats_read(post.pool, &stats);
    assert_int_equal(stats.live_bytes, 0);
    assert_int_equal(stats.front_bytes, 0);
    assert_int_equal(stats.n_allocations, stats.n_frees);
    check(post.pool);
    mt_pool_destroy(post.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_lose_nothing),
        cmocka_unit_test(test_what_is_counted_twice_leaves_no_less_than_nothing_live),
        cmocka_unit_test(test_blocks_of_a_thread_that_only_gives_go_to_one_that_asks),
        cmocka_unit_test(test_a_size_of_which_none_is_on_its_way_gets_no_room),
        cmocka_unit_test(test_a_child_of_fork_has_what_other_threads_kept_and_moved),
        cmocka_unit_test(test_threads_that_pass_blocks_on_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
