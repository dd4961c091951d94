/* SPDX-License-Identifier: MIT */
/* The public function on the kernel that is here. Sizes are of mappings that the test touches. */
#include "tests/support/unit.h"

#include <memtally/measure.h>
#include <memtally/units.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "measure/call.h"

#define MIB (UINT64_C(1) << 20)
#define assert_near(value, expected, slack)                                                        \
    assert_in_range(value, (expected) - (slack), (expected) + (slack))

/* By plain system calls: a sanitizer's mmap() takes shadow memory of its own. */
static void *touch(uint64_t bytes)
{
    long address = syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    assert_int_not_equal(address, -1);
    void *block;
    memcpy(&block, &address, sizeof block);
    return block;
}

static void unmap(void *block, uint64_t bytes)
{
    assert_int_equal(syscall(SYS_munmap, block, bytes), 0);
}

static void *touch_64_and_unmap(void *argument)
{
    unmap(touch(64 * MIB), 64 * MIB);
    return argument;
}

/* By the exact method. Returns 0, and says why, on a kernel that refuses it: there is nothing to
 * test then. */
static int measure_exactly(void *(*function)(void *), void *argument,
                           struct mt_measure_result *result)
{
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    struct mt_error error;
    options.method = MT_MEASURE_EXACT;
    int code = mt_measure_call(function, argument, &options, result, &error);
    if (code == MT_EPERM || code == MT_EUNSUPPORTED) {
        print_message("# not run: no exact method here: %s\n", error.text);
        return 0;
    }
    assert_int_equal(code, MT_OK);
    assert_int_equal(result->method, MT_MEASURE_EXACT);
    assert_int_equal(result->problem.code, MT_OK);
    return 1;
}

static void test_64_mib_touched_and_unmapped_are_the_growth(void **state)
{
    struct mt_measure_result result;
    if (!measure_exactly(touch_64_and_unmap, state, &result))
        return;
    assert_ptr_equal(result.value, state);
    assert_near(result.growth_bytes, 64 * MIB, MIB);
    assert_int_equal(result.peak_bytes, result.baseline_bytes + result.growth_bytes);
    assert_near(result.after_bytes, result.baseline_bytes, MIB);
    assert_true(result.latency_ns > 0);
    assert_int_equal(result.overlapped, 0);
}

static void test_a_peak_before_the_call_is_not_in_it(void **state)
{
    struct mt_measure_result result;
    unmap(touch(128 * MIB), 128 * MIB);
    if (!measure_exactly(touch_64_and_unmap, state, &result))
        return;
    assert_near(result.growth_bytes, 64 * MIB, MIB);
}

static void *touch_32_and_unmap(void *argument)
{
    unmap(touch(32 * MIB), 32 * MIB);
    return argument;
}

static void *measure_32_within_64(void *argument)
{
    void *block = touch(64 * MIB);
    assert_true(measure_exactly(touch_32_and_unmap, NULL, argument));
    unmap(block, 64 * MIB);
    return NULL;
}

static void *measure_32_after_64(void *argument)
{
    unmap(touch(64 * MIB), 64 * MIB);
    assert_true(measure_exactly(touch_32_and_unmap, NULL, argument));
    return NULL;
}

static void test_nested_calls_are_both_exact(void **state)
{
    (void)state;
    struct mt_measure_result inner, outer;
    if (!measure_exactly(measure_32_within_64, &inner, &outer))
        return;
    assert_near(outer.growth_bytes, 96 * MIB, MIB);
    assert_near(inner.growth_bytes, 32 * MIB, MIB);
    if (!measure_exactly(measure_32_after_64, &inner, &outer))
        return;
    assert_near(outer.growth_bytes, 64 * MIB, MIB);
    assert_near(inner.growth_bytes, 32 * MIB, MIB);
    assert_int_equal(inner.overlapped, 1);
    assert_int_equal(outer.overlapped, 1);
}

/* Two threads: A reaches +64 MiB and falls back before B begins; B takes 32 MiB; A ends last. */
struct pair {
    pthread_barrier_t a_has_fallen;
    pthread_barrier_t b_has_ended;
    struct mt_measure_result a, b;
};

static void *side_a(void *argument)
{
    struct pair *pair = argument;
    unmap(touch(64 * MIB), 64 * MIB);
    pthread_barrier_wait(&pair->a_has_fallen);
    pthread_barrier_wait(&pair->b_has_ended);
    return NULL;
}

static void *thread_a(void *argument)
{
    struct pair *pair = argument;
    mt_measure_call(side_a, pair, NULL, &pair->a, NULL);
    return NULL;
}

static void test_two_threads_measure_at_the_same_time(void **state)
{
    struct mt_measure_result probe;
    if (!measure_exactly(touch_32_and_unmap, state, &probe))
        return;
    struct pair pair;
    pthread_t thread;
    pthread_barrier_init(&pair.a_has_fallen, NULL, 2);
    pthread_barrier_init(&pair.b_has_ended, NULL, 2);
    pthread_create(&thread, NULL, thread_a, &pair);
    pthread_barrier_wait(&pair.a_has_fallen);
    assert_true(measure_exactly(touch_32_and_unmap, NULL, &pair.b));
    pthread_barrier_wait(&pair.b_has_ended);
    pthread_join(thread, NULL);
    assert_int_equal(pair.a.method, MT_MEASURE_EXACT);
    assert_near(pair.a.growth_bytes, 64 * MIB, MIB);
    assert_near(pair.b.growth_bytes, 32 * MIB, MIB);
    assert_int_equal(pair.a.overlapped, 1);
    assert_int_equal(pair.b.overlapped, 1);
    pthread_barrier_destroy(&pair.a_has_fallen);
    pthread_barrier_destroy(&pair.b_has_ended);
}

/* The real world, counting how often statm is read. */
static atomic_uint n_looks;

static long counting_read(void *context, const char *path, char *text, size_t size)
{
    long got = mt_measure_os_real.read_file(context, path, text, size);
    if (strcmp(path, "/proc/self/statm") == 0)
        atomic_fetch_add(&n_looks, 1);
    return got;
}

/* Holds 64 MiB for 100 ms, and longer where the sampling thread did not get its turn. */
static void *hold_a_plateau(void *argument)
{
    void *block = touch(64 * MIB);
    unsigned wanted = atomic_load(&n_looks) + 2;
    for (int i = 0; i < 10 || atomic_load(&n_looks) < wanted; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    unmap(block, 64 * MIB);
    return argument;
}

static void test_sampling_finds_a_plateau(void **state)
{
    struct mt_measure_os os = mt_measure_os_real;
    os.read_file = counting_read;
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    options.method = MT_MEASURE_SAMPLED;
    struct mt_measure_result result;
    assert_int_equal(mt_measure_call_in(&os, mt_measure_process_registry(), hold_a_plateau, state,
                                        &options, &result, NULL),
                     MT_OK);
    assert_ptr_equal(result.value, state);
    assert_int_equal(result.method, MT_MEASURE_SAMPLED);
    assert_near(result.growth_bytes, 64 * MIB, MIB);
    assert_true(result.n_samples >= 1);
}

static void test_a_device_that_is_not_there_is_an_error(void **state)
{
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    options.device_index = 1000;
    struct mt_measure_result result = {.value = state};
    struct mt_error error = {0};
    assert_int_equal(mt_measure_call(touch_64_and_unmap, NULL, &options, &result, &error),
                     MT_ENOTFOUND);
    assert_int_equal(error.code, MT_ENOTFOUND);
    assert_true(strlen(error.text) > 0);
    assert_ptr_equal(result.value, state);
}

static void *fork_here(void *argument)
{
    *(pid_t *)argument = fork();
    return argument;
}

/* 0 where all is as promised in the child. */
static int check_child(const struct mt_measure_result *result, const void *value)
{
    struct mt_measure_result own;
    if (result->value != value || result->problem.code != MT_EUNSUPPORTED)
        return 1;
    if (result->baseline_bytes != MT_UNKNOWN || result->peak_bytes != MT_UNKNOWN)
        return 2;
    if (mt_measure_call(touch_64_and_unmap, NULL, NULL, &own, NULL) != MT_OK || own.overlapped)
        return 3;
    return own.method == MT_MEASURE_SAMPLED || own.growth_bytes >= 63 * MIB ? 0 : 4;
}

static void fork_within(enum mt_measure_method method)
{
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    options.method = method;
    struct mt_measure_result result;
    pid_t child = -1;
    assert_int_equal(mt_measure_call(fork_here, &child, &options, &result, NULL), MT_OK);
    if (child == 0)
        _exit(check_child(&result, &child));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(result.problem.code, MT_OK);
    assert_int_not_equal(result.peak_bytes, MT_UNKNOWN);
}

static void test_a_fork_within_leaves_the_measurement_with_the_parent(void **state)
{
    (void)state;
    fork_within(MT_MEASURE_AUTO);
    fork_within(MT_MEASURE_SAMPLED);
}

static void *end_the_thread(void *argument)
{
    pthread_exit(argument);
}

static void *measure_until_thread_end(void *argument)
{
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    struct mt_measure_result result;
    options.method = MT_MEASURE_SAMPLED;
    mt_measure_call(end_the_thread, argument, &options, &result, NULL);
    return NULL;
}

static void test_a_thread_that_ends_within_puts_its_measurement_away(void **state)
{
    pthread_t thread;
    void *value = NULL;
    pthread_create(&thread, NULL, measure_until_thread_end, state);
    pthread_join(thread, &value);
    assert_ptr_equal(value, state);
    assert_null(mt_measure_process_registry()->first);
}

static void *signals_of_threads(void *argument)
{
    sigset_t *caller = argument;
    pthread_sigmask(SIG_SETMASK, NULL, caller);
    return NULL;
}

static void test_only_the_sampling_thread_blocks_signals(void **state)
{
    (void)state;
    pthread_t thread;
    sigset_t of_thread;
    assert_int_equal(mt_measure_os_real.start_thread(NULL, &thread, signals_of_threads, &of_thread),
                     0);
    pthread_join(thread, NULL);
    assert_int_equal(sigismember(&of_thread, SIGINT), 1);
    assert_int_equal(sigismember(&of_thread, SIGPROF), 1);
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    struct mt_measure_result result;
    sigset_t within;
    options.method = MT_MEASURE_SAMPLED;
    assert_int_equal(mt_measure_call(signals_of_threads, &within, &options, &result, NULL), MT_OK);
    assert_int_equal(sigismember(&within, SIGINT), 0);
    assert_int_equal(sigismember(&within, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_64_mib_touched_and_unmapped_are_the_growth),
        cmocka_unit_test(test_a_peak_before_the_call_is_not_in_it),
        cmocka_unit_test(test_nested_calls_are_both_exact),
        cmocka_unit_test(test_two_threads_measure_at_the_same_time),
        cmocka_unit_test(test_sampling_finds_a_plateau),
        cmocka_unit_test(test_a_device_that_is_not_there_is_an_error),
        cmocka_unit_test(test_a_fork_within_leaves_the_measurement_with_the_parent),
        cmocka_unit_test(test_a_thread_that_ends_within_puts_its_measurement_away),
        cmocka_unit_test(test_only_the_sampling_thread_blocks_signals),
    };
    return RUN_TESTS(tests);
}
