/* SPDX-License-Identifier: MIT */
/* A monitor of a made place with a made clock. */
#include "tests/support/unit.h"

#include <memtally/units.h>

#include "guard/monitor.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define MS  ((uint64_t)1000000)

/* ---- a made place ---- */

static struct mt_monitor_figures place;
static int place_status;
static int n_closed;
static atomic_ulong now_ns;
static int nobody_waits; /* time is over at once */

static int read_place(void *context, struct mt_monitor_figures *figures, struct mt_error *error)
{
    (void)context;
    (void)error;
    if (place_status == 0)
        *figures = place;
    return place_status;
}

static void close_place(void *context)
{
    (void)context;
    n_closed++;
}

static uint64_t made_now(void *context)
{
    (void)context;
    return now_ns;
}

static int made_wait(void *context, pthread_cond_t *condition, pthread_mutex_t *lock,
                     uint64_t timeout_ns)
{
    (void)context;
    (void)timeout_ns;
    return nobody_waits ? ETIMEDOUT : pthread_cond_wait(condition, lock);
}

static const struct mt_monitor_source source = {"made", NULL, read_place, close_place, NULL};
static const struct mt_monitor_os os = {NULL, made_now, made_wait};

static struct mt_monitor *monitor_with(const struct mt_monitor_options *options)
{
    struct mt_monitor *monitor;
    place = (struct mt_monitor_figures){100 * GIB, 60 * GIB, MT_UNKNOWN};
    place_status = n_closed = nobody_waits = 0;
    now_ns = 0;
    assert_int_equal(mt_monitor_create_with(&os, &source, options, &monitor, NULL), 0);
    return monitor;
}

static enum mt_pressure pressure_at(struct mt_monitor *monitor, uint64_t percent)
{
    struct mt_monitor_snapshot snapshot;
    place.available_bytes = (100 - percent) * GIB;
    assert_int_equal(mt_monitor_record(monitor, &snapshot, NULL), 0);
    return snapshot.pressure;
}

/* ---- looks ---- */

static void test_the_history_keeps_the_newest_and_the_peak_stays(void **state)
{
    struct mt_monitor_options options = {.history = 3};
    struct mt_monitor *monitor = monitor_with(&options);
    struct mt_monitor_snapshot history[5];
    struct mt_monitor_stats stats;
    (void)state;
    for (uint64_t percent = 50; percent > 45; percent--) {
        now_ns += MS;
        pressure_at(monitor, percent);
    }
    assert_int_equal(mt_monitor_history(monitor, history, 5), 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(history[i].allocated_bytes, (48 - i) * GIB);
        assert_int_equal(history[i].time_ns, (3 + i) * MS);
    }
    assert_int_equal(mt_monitor_history(monitor, history, 1), 1);
    assert_int_equal(history[0].allocated_bytes, 46 * GIB);
    mt_monitor_stats_read(monitor, &stats);
    assert_int_equal(stats.peak_bytes, 50 * GIB);
    assert_true(stats.average_bytes == (double)(48 * GIB)); /* of 50, 49, 48, 47, 46 */
    mt_monitor_destroy(monitor);
    assert_int_equal(n_closed, 1);
}

static size_t n_glances;

static int glance_at_place(void *context, struct mt_monitor_figures *figures,
                           struct mt_error *error)
{
    n_glances++;
    return read_place(context, figures, error);
}

static void test_recordings_glance_while_pressure_is_below_high(void **state)
{
    struct mt_monitor_source both = {"made", NULL, read_place, close_place, glance_at_place};
    struct mt_monitor *monitor;
    struct mt_monitor_snapshot seen;
    (void)state;
    assert_int_equal(mt_monitor_create_with(&os, &both, NULL, &monitor, NULL), 0);
    place = (struct mt_monitor_figures){100 * GIB, 60 * GIB, MT_UNKNOWN};
    place_status = 0;
    n_glances = 0;
    pressure_at(monitor, 40);
    pressure_at(monitor, 70);
    pressure_at(monitor, 85); /* HIGH from here on */
    assert_int_equal(n_glances, 3);
    pressure_at(monitor, 95);
    pressure_at(monitor, 40);
    assert_int_equal(n_glances, 3);
    pressure_at(monitor, 40);
    assert_int_equal(n_glances, 4);
    assert_int_equal(mt_monitor_look(monitor, &seen, NULL), 0);
    assert_true(mt_monitor_can_allocate(monitor, GIB, 0.1));
    assert_false(mt_monitor_is_low(monitor, 0.5));
    assert_int_equal(mt_monitor_cleanup(monitor, MT_UNKNOWN, NULL, NULL), 0);
    assert_int_equal(n_glances, 4);
    mt_monitor_destroy(monitor);
}

static void test_a_place_that_says_more_is_free_than_there_is_is_empty(void **state)
{
    struct mt_monitor *monitor = monitor_with(NULL);
    struct mt_monitor_snapshot seen;
    (void)state;
    place = (struct mt_monitor_figures){100 * GIB, 101 * GIB, 102 * GIB};
    assert_int_equal(mt_monitor_look(monitor, &seen, NULL), 0);
    assert_int_equal(seen.allocated_bytes, 0);
    assert_int_equal(seen.available_bytes, 100 * GIB);
    assert_int_equal(seen.largest_bytes, 100 * GIB);
    mt_monitor_destroy(monitor);
}

static enum mt_pressure told[16];
static size_t n_told;

static void tell(void *context, const struct mt_monitor_snapshot *snapshot, enum mt_pressure before)
{
    (void)context;
    assert_int_not_equal(snapshot->pressure, before);
    told[n_told++] = snapshot->pressure;
}

static void test_a_level_ends_below_where_it_began(void **state)
{
    struct mt_monitor_options options = {.hysteresis_ratio = 0.05, .on_pressure = tell};
    struct mt_monitor *monitor = monitor_with(&options);
    struct mt_monitor_stats stats;
    (void)state;
    n_told = 0;
    assert_int_equal(pressure_at(monitor, 59), MT_PRESSURE_LOW);
    assert_int_equal(pressure_at(monitor, 60), MT_PRESSURE_MODERATE);
    assert_int_equal(pressure_at(monitor, 56), MT_PRESSURE_MODERATE);
    assert_int_equal(pressure_at(monitor, 60), MT_PRESSURE_MODERATE);
    assert_int_equal(pressure_at(monitor, 54), MT_PRESSURE_LOW);
    now_ns = 7;
    assert_int_equal(pressure_at(monitor, 95), MT_PRESSURE_CRITICAL);
    assert_int_equal(pressure_at(monitor, 76), MT_PRESSURE_HIGH);
    assert_int_equal(pressure_at(monitor, 10), MT_PRESSURE_LOW);
    const enum mt_pressure expected[] = {MT_PRESSURE_MODERATE, MT_PRESSURE_LOW,
                                         MT_PRESSURE_CRITICAL, MT_PRESSURE_HIGH, MT_PRESSURE_LOW};
    assert_int_equal(n_told, 5);
    assert_memory_equal(told, expected, sizeof expected);
    mt_monitor_stats_read(monitor, &stats);
    assert_int_equal(stats.n_events[MT_PRESSURE_LOW], 2);
    assert_int_equal(stats.n_events[MT_PRESSURE_CRITICAL], 1);
    assert_int_equal(stats.last_event_ns[MT_PRESSURE_CRITICAL], 7);
    assert_int_equal(stats.last_event_ns[MT_PRESSURE_MODERATE], 0);
    mt_monitor_destroy(monitor);
}

static void test_levels_must_rise(void **state)
{
    struct mt_monitor_options options = {.level_ratios = {0.8, 0.8, 0.9}};
    struct mt_monitor *monitor = NULL;
    struct mt_error error;
    (void)state;
    n_closed = 0;
    assert_int_equal(mt_monitor_create(&source, &options, &monitor, &error), MT_EARG);
    assert_int_equal(n_closed, 1);
    assert_null(monitor);
}

static void test_a_place_that_cannot_be_read_is_full(void **state)
{
    struct mt_monitor *monitor = monitor_with(NULL);
    struct mt_monitor_stats stats;
    (void)state;
    place_status = MT_EIO;
    assert_int_equal(mt_monitor_record(monitor, NULL, NULL), MT_EIO);
    assert_false(mt_monitor_can_allocate(monitor, 1, 0));
    assert_true(mt_monitor_is_low(monitor, 0.9));
    mt_monitor_stats_read(monitor, &stats);
    assert_int_equal(stats.n_failures, 1);
    assert_int_equal(stats.n_records, 0);
    mt_monitor_destroy(monitor);
}

/* ---- what can be had ---- */

static struct mt_monitor_pooled pooled;

static int ask(void *context, uint64_t available_bytes, struct mt_monitor_pooled *answer)
{
    (void)context;
    (void)available_bytes;
    *answer = pooled;
    return 0;
}

static void test_the_largest_block_decides(void **state)
{
    struct mt_monitor *monitor = monitor_with(NULL);
    struct mt_monitor_snapshot snapshot;
    (void)state;
    assert_true(mt_monitor_can_allocate(monitor, 50 * GIB, 0.1));  /* 55 of 60 */
    assert_false(mt_monitor_can_allocate(monitor, 55 * GIB, 0.1)); /* 60.5 */
    assert_false(mt_monitor_can_allocate(monitor, UINT64_MAX, 0));
    place.largest_bytes = 10 * GIB;
    assert_false(mt_monitor_can_allocate(monitor, 50 * GIB, 0.1));
    assert_true(mt_monitor_can_allocate(monitor, 10 * GIB, 0));
    /* A pool has 20 GiB in pieces of at most 12. */
    assert_int_equal(mt_monitor_add_pool(monitor, ask, NULL, NULL), 0);
    pooled = (struct mt_monitor_pooled){20 * GIB, 12 * GIB};
    assert_true(mt_monitor_can_allocate(monitor, 12 * GIB, 0));
    assert_false(mt_monitor_can_allocate(monitor, 13 * GIB, 0));
    assert_int_equal(mt_monitor_look(monitor, &snapshot, NULL), 0);
    assert_int_equal(snapshot.pooled_bytes, 20 * GIB);
    assert_int_equal(snapshot.largest_bytes, 12 * GIB);
    mt_monitor_destroy(monitor);
}

static void test_low_memory_is_by_its_threshold(void **state)
{
    struct mt_monitor *monitor = monitor_with(NULL);
    (void)state;
    place.available_bytes = 15 * GIB;
    assert_true(mt_monitor_is_low(monitor, 0.85));
    place.available_bytes = 16 * GIB;
    assert_false(mt_monitor_is_low(monitor, 0.85));
    mt_monitor_destroy(monitor);
}

/* ---- cleaning up ---- */

/* A cleanup that takes so long and frees so much, and writes down that it was called. */
struct cleaner {
    char letter;
    uint64_t bytes;
    uint64_t took_ns;
    int is_silent; /* says nothing of what it freed */
};

static char called[64];

static uint64_t clean(void *context)
{
    const struct cleaner *cleaner = context;
    size_t n = strlen(called);
    called[n] = cleaner->letter;
    called[n + 1] = '\0';
    now_ns += cleaner->took_ns;
    place.available_bytes += cleaner->bytes;
    return cleaner->is_silent ? MT_UNKNOWN : cleaner->bytes;
}

static void add(struct mt_monitor *monitor, struct cleaner *cleaner, int priority)
{
    char name[2] = {cleaner->letter, '\0'};
    assert_int_equal(mt_monitor_add_cleanup(monitor, name, clean, cleaner, priority, NULL, NULL),
                     0);
}

static void test_what_is_worth_most_for_its_time_goes_first(void **state)
{
    struct mt_monitor *monitor = monitor_with(NULL);
    struct cleaner slow = {'s', 8 * GIB, 100 * MS, 0};   /* 82 MiB a millisecond */
    struct cleaner quick = {'q', 1 * GIB, 1 * MS, 0};    /* 1,024 */
    struct cleaner silent = {'u', 4 * GIB, 10 * MS, 1};  /* 410 */
    struct cleaner first = {'f', 1 * MIB, 1000 * MS, 0}; /* 0.001, of higher priority */
    struct mt_monitor_cleanup report;
    (void)state;
    add(monitor, &slow, 0);
    add(monitor, &silent, 0);
    add(monitor, &quick, 0);
    add(monitor, &first, 1);
    place.available_bytes = 10 * GIB;
    *called = '\0';
    /* Nobody knows yet: in the order in which they came. */
    assert_int_equal(mt_monitor_cleanup(monitor, MT_UNKNOWN, &report, NULL), 0);
    assert_string_equal(called, "fsuq");
    assert_int_equal(report.n_calls, 4);
    assert_int_equal(report.before_bytes, 10 * GIB);
    assert_int_equal(report.after_bytes, 23 * GIB + MIB);
    assert_string_equal(report.calls[2].name, "u");
    assert_int_equal(report.calls[2].freed_bytes, 4 * GIB);
    assert_int_equal(report.calls[2].took_ns, 10 * MS);
    *called = '\0';
    assert_int_equal(mt_monitor_cleanup(monitor, MT_UNKNOWN, &report, NULL), 0);
    assert_string_equal(called, "fqus");
    /* Enough is enough. */
    place.available_bytes = 10 * GIB;
    *called = '\0';
    assert_int_equal(mt_monitor_cleanup(monitor, 12 * GIB, &report, NULL), 0);
    assert_string_equal(called, "fqu");
    mt_monitor_destroy(monitor);
}

static void test_recording_cleans_up_above_its_threshold(void **state)
{
    struct mt_monitor_options options = {.cleanup_ratio = 0.85, .cleanup_pause_ns = 1000 * MS};
    struct mt_monitor *monitor = monitor_with(&options);
    struct cleaner some = {'s', GIB, MS, 0};
    struct mt_monitor_stats stats;
    (void)state;
    add(monitor, &some, 0);
    *called = '\0';
    pressure_at(monitor, 84);
    assert_string_equal(called, "");
    pressure_at(monitor, 85);
    assert_string_equal(called, "s");
    pressure_at(monitor, 86); /* not again so soon */
    assert_string_equal(called, "s");
    now_ns += 1000 * MS;
    pressure_at(monitor, 86);
    assert_string_equal(called, "ss");
    mt_monitor_stats_read(monitor, &stats);
    assert_int_equal(stats.n_cleanups, 2);
    assert_int_equal(stats.cleaned_bytes, 2 * GIB);
    mt_monitor_destroy(monitor);
}

/* ---- callbacks that misbehave ---- */

static sem_t is_inside;
static sem_t may_leave;
static sem_t has_left;

static uint64_t hang(void *context)
{
    (void)context;
    sem_post(&is_inside);
    sem_wait(&may_leave);
    sem_post(&has_left);
    return 0;
}

static void init_semaphores(void)
{
    sem_init(&is_inside, 0, 0);
    sem_init(&may_leave, 0, 0);
    sem_init(&has_left, 0, 0);
}

static void test_a_callback_that_hangs_keeps_nobody(void **state)
{
    struct mt_monitor *monitor = monitor_with(NULL);
    struct mt_monitor_cleanup report;
    struct cleaner some = {'s', GIB, MS, 0};
    uint64_t id;
    (void)state;
    init_semaphores();
    assert_int_equal(mt_monitor_add_cleanup(monitor, "hangs", hang, NULL, 9, &id, NULL), 0);
    nobody_waits = 1;
    assert_int_equal(mt_monitor_cleanup(monitor, MT_UNKNOWN, &report, NULL), 0);
    assert_int_equal(report.n_calls, 1);
    assert_true(report.calls[0].hangs);
    sem_wait(&is_inside);
    assert_int_equal(mt_monitor_remove_cleanup(monitor, id), MT_EBUSY);
    /* It is passed over; others are called. */
    nobody_waits = 0;
    add(monitor, &some, 0);
    *called = '\0';
    assert_int_equal(mt_monitor_cleanup(monitor, MT_UNKNOWN, &report, NULL), 0);
    assert_int_equal(report.n_calls, 1);
    assert_string_equal(called, "s");
    mt_monitor_destroy(monitor);
    /* It outlives the monitor. */
    sem_post(&may_leave);
    sem_wait(&has_left);
}

static uint64_t end_thread(void *context)
{
    (void)context;
    pthread_exit(NULL);
}

static void test_a_callback_may_end_its_thread(void **state)
{
    struct mt_monitor *monitor = monitor_with(NULL);
    struct mt_monitor_cleanup report;
    uint64_t id;
    (void)state;
    assert_int_equal(mt_monitor_add_cleanup(monitor, "ends", end_thread, NULL, 0, &id, NULL), 0);
    assert_int_equal(mt_monitor_cleanup(monitor, MT_UNKNOWN, &report, NULL), 0);
    assert_int_equal(report.n_calls, 1);
    assert_false(report.calls[0].hangs);
    assert_int_equal(mt_monitor_remove_cleanup(monitor, id), 0);
    assert_int_equal(mt_monitor_remove_cleanup(monitor, id), MT_ENOTFOUND);
    mt_monitor_destroy(monitor);
}

static struct mt_monitor *inner;
static int inner_status;

static uint64_t clean_within(void *context)
{
    (void)context;
    inner_status = mt_monitor_cleanup(inner, MT_UNKNOWN, NULL, NULL);
    return 0;
}

static void test_nobody_cleans_up_twice_at_once(void **state)
{
    struct mt_monitor_options options = {.cleanup_ratio = 0.1};
    (void)state;
    inner = monitor_with(&options);
    assert_int_equal(mt_monitor_add_cleanup(inner, "again", clean_within, NULL, 0, NULL, NULL), 0);
    assert_int_equal(mt_monitor_cleanup(inner, MT_UNKNOWN, NULL, NULL), 0);
    assert_int_equal(inner_status, MT_EBUSY);
    mt_monitor_destroy(inner);
}

/* ---- many threads ---- */

static atomic_int n_inside;
static atomic_int was_twice;

static uint64_t alone(void *context)
{
    (void)context;
    if (atomic_fetch_add(&n_inside, 1) != 0)
        was_twice = 1;
    atomic_fetch_sub(&n_inside, 1);
    return 0;
}

static void *use(void *context)
{
    struct mt_monitor *monitor = context;
    struct mt_monitor_snapshot history[8];
    uint64_t id;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(mt_monitor_add_cleanup(monitor, "c", alone, NULL, i, &id, NULL), 0);
        mt_monitor_record(monitor, NULL, NULL);
        mt_monitor_can_allocate(monitor, GIB, 0.1);
        mt_monitor_cleanup(monitor, MT_UNKNOWN, NULL, NULL);
        mt_monitor_history(monitor, history, 8);
        while (mt_monitor_remove_cleanup(monitor, id) == MT_EBUSY)
            sched_yield();
    }
    return NULL;
}

static void test_eight_threads_share_a_monitor(void **state)
{
    struct mt_monitor *monitor = monitor_with(NULL);
    struct mt_monitor_stats stats;
    pthread_t threads[8];
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, monitor), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_false(was_twice);
    mt_monitor_stats_read(monitor, &stats);
    assert_int_equal(stats.n_records, 400);
    mt_monitor_destroy(monitor);
}

static void *register_one(void *context)
{
    uint64_t id;
    if (mt_monitor_add_cleanup(context, "one", alone, NULL, 0, &id, NULL) != 0)
        return context;
    return NULL;
}

static void test_ten_thousand_threads_register(void **state)
{
    struct mt_monitor *monitor = monitor_with(NULL);
    (void)state;
    for (int i = 0; i < 10000; i += 50) {
        pthread_t threads[50];
        void *failed;
        for (int j = 0; j < 50; j++)
            assert_int_equal(pthread_create(&threads[j], NULL, register_one, monitor), 0);
        for (int j = 0; j < 50; j++) {
            pthread_join(threads[j], &failed);
            assert_null(failed);
        }
    }
    assert_int_equal(monitor->n_cleanups, 10000);
    mt_monitor_destroy(monitor);
}

/* ---- our own pool ---- */

static void test_a_pool_is_told_and_trimmed(void **state)
{
    struct mt_monitor *monitor = monitor_with(NULL);
    struct mt_pool_simulated *device;
    struct mt_pool *pool;
    struct mt_monitor_snapshot snapshot;
    struct mt_monitor_cleanup report;
    uint64_t address;
    (void)state;
    assert_int_equal(mt_pool_simulated_create(GIB, 2 * MIB, &device, NULL), 0);
    assert_int_equal(mt_pool_create(mt_pool_simulated_backend(device), NULL, &pool, NULL), 0);
    assert_int_equal(mt_pool_allocate(pool, 64 * MIB, 0, &address), 0);
    assert_int_equal(mt_pool_free(pool, address), 0);
    assert_int_equal(mt_monitor_watch_pool(monitor, pool, NULL), 0);
    assert_int_equal(mt_monitor_look(monitor, &snapshot, NULL), 0);
    assert_true(snapshot.pooled_bytes >= 64 * MIB);
    assert_int_equal(mt_monitor_cleanup(monitor, MT_UNKNOWN, &report, NULL), 0);
    assert_int_equal(report.calls[0].freed_bytes, snapshot.pooled_bytes);
    assert_int_equal(mt_monitor_look(monitor, &snapshot, NULL), 0);
    assert_int_equal(snapshot.pooled_bytes, 0);
    mt_monitor_destroy(monitor);
    mt_pool_destroy(pool);
    mt_pool_simulated_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_history_keeps_the_newest_and_the_peak_stays),
        cmocka_unit_test(test_recordings_glance_while_pressure_is_below_high),
        cmocka_unit_test(test_a_place_that_says_more_is_free_than_there_is_is_empty),
        cmocka_unit_test(test_a_level_ends_below_where_it_began),
        cmocka_unit_test(test_levels_must_rise),
        cmocka_unit_test(test_a_place_that_cannot_be_read_is_full),
        cmocka_unit_test(test_the_largest_block_decides),
        cmocka_unit_test(test_low_memory_is_by_its_threshold),
        cmocka_unit_test(test_what_is_worth_most_for_its_time_goes_first),
        cmocka_unit_test(test_recording_cleans_up_above_its_threshold),
        cmocka_unit_test(test_a_callback_that_hangs_keeps_nobody),
        cmocka_unit_test(test_a_callback_may_end_its_thread),
        cmocka_unit_test(test_nobody_cleans_up_twice_at_once),
        cmocka_unit_test(test_eight_threads_share_a_monitor),
        cmocka_unit_test(test_ten_thousand_threads_register),
        cmocka_unit_test(test_a_pool_is_told_and_trimmed),
    };
    return RUN_TESTS(tests);
}
