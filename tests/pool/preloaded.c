/* SPDX-License-Identifier: MIT */
/* A program into which libmemtally-pool.so is preloaded: its large blocks come from the pool, and
 * malloc and its kind do what the C standard and POSIX say. With an argument it only says whether
 * there is a pool, and that a large block can be had. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <memtally/error.h>
#include <memtally/pool.h>

#define MIB     ((size_t)1 << 20)
#define THREADS 8
#define ROUNDS  400

static int (*read_stats)(struct mt_pool_stats *);
/* Keep the compiler from seeing through what is asked of the allocator. */
static void *volatile shown;
static volatile size_t too_many = SIZE_MAX / 2;

static struct mt_pool_stats stats_now(void)
{
    struct mt_pool_stats stats = {0};
    read_stats(&stats);
    return stats;
}

static char *take(size_t bytes)
{
    shown = malloc(bytes);
    assert_non_null(shown);
    return shown;
}

static void test_large_blocks_come_from_the_pool_and_small_ones_do_not(void **state)
{
    (void)state;
    uint64_t before = stats_now().n_allocations;
    char *small = take(MIB - 1);
    assert_int_equal(stats_now().n_allocations, before);
    char *large = take(MIB);
    assert_int_equal(stats_now().n_allocations, before + 1);
    memset(small, 1, MIB - 1);
    memset(large, 2, MIB);
    free(small);
    free(large);
    char *again = take(MIB);
    assert_ptr_equal(again, large);
    free(again);
    assert_int_equal(stats_now().live_bytes, 0);
}

static size_t resident(uintptr_t block, size_t bytes)
{
    static unsigned char pages[64 * MIB / 4096 + 1];
    uintptr_t begin = block & ~(uintptr_t)4095;
    assert_int_equal(mincore((void *)begin, bytes, pages), 0);
    size_t n = 0;
    for (size_t i = 0; i < bytes / 4096; i++)
        n += pages[i] & 1;
    return n * 4096;
}

static void test_calloc_of_used_memory_is_zero_and_touches_nothing(void **state)
{
    (void)state;
    char *used = take(33 * MIB + 123);
    memset(used, 77, 33 * MIB + 123);
    free(used);
    char *clear = calloc(33 * MIB + 123, 1);
    assert_ptr_equal(clear, used);
    assert_true(resident((uintptr_t)clear, 33 * MIB) <= 4 * MIB); /* huge pages at both ends */
    for (size_t i = 0; i < 33 * MIB + 123; i++)
        if (clear[i])
            fail_msg("byte %zu is %d", i, clear[i]);
    free(clear);
    shown = calloc(too_many, 3);
    assert_null(shown);
    assert_int_equal(errno, ENOMEM);
}

static void fill(unsigned char *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        block[i] = (unsigned char)(i * 7 + i / 251);
}

static void assert_filled(const unsigned char *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (block[i] != (unsigned char)(i * 7 + i / 251))
            fail_msg("byte %zu is %d", i, block[i]);
}

/* From the program's own allocator into the pool's sizes, past them, and back. */
static void test_realloc_keeps_what_is_in_a_block(void **state)
{
    (void)state;
    static const size_t sizes[] = {5 * MIB, 1000, 3 * MIB, 40 * MIB, 333 * MIB, 2 * MIB, 500};
    size_t had = 3 * MIB;
    unsigned char *block = (unsigned char *)take(had);
    fill(block, had);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        block = realloc(block, sizes[i]);
        assert_non_null(block);
        assert_filled(block, had < sizes[i] ? had : sizes[i]);
        assert_true(malloc_usable_size(block) >= sizes[i]);
        fill(block, sizes[i]);
        had = sizes[i];
    }
    free(block);
    block = (unsigned char *)take(3 * MIB);
    shown = realloc(block, 0);
    assert_null(shown);
    assert_int_equal(stats_now().live_bytes, 0);
    block = reallocarray(NULL, 3, MIB);
    assert_non_null(block);
    block = reallocarray(block, 5, MIB);
    assert_non_null(block);
    shown = block;
    assert_null(reallocarray(shown, too_many, 4));
    free(shown);
}

static void test_aligned_blocks_are_aligned(void **state)
{
    (void)state;
    for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 2)
        for (size_t bytes = 64 * 1024; bytes <= 8 * MIB; bytes *= 8) {
            void *block = NULL;
            assert_int_equal(posix_memalign(&block, alignment, bytes), 0);
            void *blocks[] = {block, aligned_alloc(alignment, bytes), memalign(alignment, bytes)};
            for (int i = 0; i < 3; i++) {
                assert_non_null(blocks[i]);
                assert_int_equal((uintptr_t)blocks[i] % alignment, 0);
                assert_true(malloc_usable_size(blocks[i]) >= bytes);
                memset(blocks[i], 3, bytes);
            }
            for (int i = 0; i < 3; i++)
                free(blocks[i]);
        }
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, 24, MIB), EINVAL);
    uint64_t before = stats_now().n_allocations;
    assert_int_equal(posix_memalign(&block, 64, 2 * MIB), 0); /* as tensors of the host are */
    assert_int_equal(stats_now().n_allocations, before + 1);
    free(block);
}

static void test_trim_gives_pages_back(void **state)
{
    (void)state;
    uintptr_t block = (uintptr_t)take(32 * MIB);
    memset(shown, 1, 32 * MIB);
    free(shown);
    assert_true(resident(block, 32 * MIB) > 31 * MIB);
    malloc_trim(0);
    assert_int_equal(stats_now().reserved_bytes, 0);
    assert_int_equal(resident(block, 32 * MIB), 0);
}

static void *handed[THREADS];

/* Blocks go from thread to thread; each says itself how long it is. */
static void *hand_around(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes = MIB + (size_t)rand_r(&seed) % (6 * MIB);
        size_t *block = malloc(bytes);
        if (!block)
            return argument;
        block[0] = bytes;
        block[bytes / sizeof bytes - 1] = bytes;
        size_t *other = __atomic_exchange_n(&handed[(unsigned)rand_r(&seed) % THREADS], block,
                                            __ATOMIC_ACQ_REL);
        if (other && other[other[0] / sizeof bytes - 1] != other[0])
            return argument;
        free(other);
    }
    return NULL;
}

static void test_threads_hand_blocks_to_each_other(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hand_around, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    for (int i = 0; i < THREADS; i++)
        free(__atomic_exchange_n(&handed[i], NULL, __ATOMIC_ACQ_REL));
    assert_int_equal(stats_now().live_bytes, 0);
}

static _Atomic int is_over;

/* Two blocks at a time: a thread keeps one without a lock. */
static void *take_and_give(void *argument)
{
    while (!is_over) {
        char *blocks[2] = {malloc(2 * MIB), malloc(3 * MIB)};
        free(blocks[0]);
        free(blocks[1]);
    }
    return argument;
}

static void *take_and_give_once(void *argument)
{
    char *block = malloc(5 * MIB);
    if (!block)
        abort();
    free(block);
    return argument;
}

/* As a library that ends its threads before a fork, and begins them anew. */
static void in_a_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, take_and_give_once, NULL) == 0)
        pthread_join(thread, NULL);
}

static void in_child(const unsigned char *of_parent)
{
    alarm(200);                                   /* who waits for a lock for ever is ended */
    assert_int_equal(stats_now().front_bytes, 0); /* whatever the threads of the parent kept */
    assert_filled(of_parent, 2 * MIB);
    for (int i = 0; i < 20; i++) {
        char *blocks[4];
        for (int k = 0; k < 4; k++)
            memset(blocks[k] = take((size_t)(k + 1) * MIB), k, 100);
        for (int k = 0; k < 4; k++)
            free(blocks[k]);
    }
    free((void *)(uintptr_t)of_parent);
    _exit(0);
}

static void test_child_of_fork_has_a_pool_of_its_own(void **state)
{
    (void)state;
    pthread_t threads[2];
    unsigned char *block = (unsigned char *)take(2 * MIB);
    fill(block, 2 * MIB);
    is_over = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, NULL), 0);
    for (int i = 0; i < 40; i++) {
        int status;
        pid_t child = fork();
        if (!child)
            in_child(block);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_filled(block, 2 * MIB);
    free(block);
}

static int tell(void)
{
    struct mt_pool_stats stats = {0};
    char *block = malloc(64 * MIB);
    if (!block)
        return 1;
    block[64 * MIB - 1] = 1;
    shown = block;
    int has_pool = read_stats && read_stats(&stats) == MT_OK;
    printf("%s\n", !has_pool ? "no pool" : stats.live_bytes ? "in the pool" : "outside");
    free(block);
    return 0;
}

int main(int argc, char **argv)
{
    (void)argv;
    void *found = dlsym(RTLD_DEFAULT, "memtally_pool_host_stats");
    memcpy(&read_stats, &found, sizeof found);
    if (argc > 1)
        return tell();
    if (!read_stats) {
        fprintf(stderr, "libmemtally-pool.so is not preloaded\n");
        return 2;
    }
    pthread_atfork(in_a_thread, in_a_thread, NULL); /* before anybody has taken a large block */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_blocks_come_from_the_pool_and_small_ones_do_not),
        cmocka_unit_test(test_calloc_of_used_memory_is_zero_and_touches_nothing),
        cmocka_unit_test(test_realloc_keeps_what_is_in_a_block),
        cmocka_unit_test(test_aligned_blocks_are_aligned),
        cmocka_unit_test(test_trim_gives_pages_back),
        cmocka_unit_test(test_threads_hand_blocks_to_each_other),
        cmocka_unit_test(test_child_of_fork_has_a_pool_of_its_own),
    };
    return cmocka_run_group_tests_name("pool_preloaded", tests, NULL, NULL);
}
