/* SPDX-License-Identifier: MIT */
/* A series of looks, on a kernel that the test commands; the thread is real. */
#include "tests/support/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memtally/units.h>

#include "fake_kernel.h"
#include "measure/track.h"

#define MIB (UINT64_C(1) << 20)
#define MS  (UINT64_C(1000000))

/* What the alerts said; the thread that looks is the only one that writes before it has ended. */
struct told {
    size_t n;
    uint64_t bytes[8], baseline;
    int device;
};

static void tell(void *context, int device, uint64_t bytes, uint64_t baseline_bytes)
{
    struct told *told = context;
    assert_true(told->n < 8);
    told->bytes[told->n++] = bytes;
    told->baseline = baseline_bytes;
    told->device = device;
}

static struct mt_track *start(struct fake_kernel *kernel, struct mt_track_options options)
{
    struct mt_track *track = NULL;
    assert_int_equal(mt_track_start_with(&kernel->os, &options, &track, NULL), MT_OK);
    return track;
}

static void test_the_thread_looks_from_the_start(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    fake_kernel_init(&kernel);
    struct mt_track *track = start(&kernel, (struct mt_track_options){.interval_ns = MS});
    struct mt_track_sample samples[3], now;
    fake_await_look(&kernel);
    fake_take(&kernel, 50 * MIB);
    fake_pass(&kernel, 7 * MS);
    mt_track_look(track, &now);
    assert_int_equal(now.resident_bytes, 150 * MIB);
    assert_int_equal(now.device_bytes[0], MT_UNKNOWN);
    assert_true(now.time_ns >= 7 * MS && now.heap_used_bytes != MT_UNKNOWN);
    assert_int_equal(mt_track_copy(track, samples, 3), 3);
    assert_int_equal(samples[0].resident_bytes, 100 * MIB);
    assert_true(samples[0].time_ns <= samples[1].time_ns &&
                samples[1].time_ns <= samples[2].time_ns);
    mt_track_destroy(track);
}

static void test_growth_is_told_once_for_each_step_of_it(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct told told = {0};
    fake_kernel_init(&kernel);
    struct mt_track *track = start(
        &kernel, (struct mt_track_options){
                     .interval_ns = MS, .alert_bytes = 100 * MIB, .alert = tell, .context = &told});
    const uint64_t sizes[] = {99, 101, 150, 450, 100, 460};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fake_take(&kernel, sizes[i] * MIB);
        fake_await_look(&kernel);
        fake_await_look(&kernel);
        fake_give(&kernel, sizes[i] * MIB);
    }
    mt_track_destroy(track);
    assert_int_equal(told.n, 2); /* at 101, and at 450, where four steps are reached at once */
    assert_int_equal(told.bytes[0], 201 * MIB);
    assert_int_equal(told.bytes[1], 550 * MIB);
    assert_int_equal(told.baseline, 100 * MIB);
    assert_int_equal(told.device, -1);
}

/* The first stays; from then on there are at least half as many as there is room for. */
static void test_a_long_series_is_thinned_and_keeps_its_first_sample(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    fake_kernel_init(&kernel);
    struct mt_track *track = start(&kernel, (struct mt_track_options){0});
    struct mt_track_sample *samples = calloc(MT_TRACK_SAMPLES, sizeof *samples);
    for (size_t i = 0; i < 5 * MT_TRACK_SAMPLES; i++) {
        fake_take(&kernel, 4096);
        fake_pass(&kernel, MS);
        mt_track_look(track, NULL);
    }
    size_t n = mt_track_copy(track, samples, MT_TRACK_SAMPLES);
    assert_in_range(n, MT_TRACK_SAMPLES / 2, MT_TRACK_SAMPLES);
    assert_int_equal(samples[0].resident_bytes, 100 * MIB);
    for (size_t i = 1; i < n; i++)
        assert_true(samples[i - 1].time_ns < samples[i].time_ns);
    assert_int_equal(samples[n - 1].resident_bytes,
                     100 * MIB + UINT64_C(4096) * 5 * MT_TRACK_SAMPLES);
    free(samples);
    mt_track_destroy(track);
}

static void test_a_forked_child_sees_nothing_and_ends(void **state)
{
    (void)state;
    struct mt_track_options options = MT_TRACK_OPTIONS_INIT;
    struct mt_track *track = NULL;
    options.interval_ns = MS;
    assert_int_equal(mt_track_start(&options, &track, NULL), MT_OK);
    pid_t child = fork();
    if (child == 0) {
        struct mt_track_sample sample = {0};
        mt_track_look(track, &sample);
        int wrong = sample.resident_bytes != MT_UNKNOWN || mt_track_copy(track, &sample, 1) != 0;
        mt_track_destroy(track);
        _exit(wrong);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    mt_track_destroy(track);
}

static void test_what_cannot_start_leaves_nothing(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_track *track = NULL;
    struct mt_error error;
    fake_kernel_init(&kernel);
    kernel.thread_errno = EAGAIN;
    const struct mt_track_options all = MT_TRACK_OPTIONS_INIT;
    assert_int_equal(mt_track_start_with(&kernel.os, &all, &track, &error), MT_ENOMEM);
    const struct mt_track_options wrong[] = {
        {.interval_ns = 1}, {.interval_ns = UINT64_MAX}, {.n_devices = MT_TRACK_DEVICES + 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(mt_track_start(&wrong[i], &track, &error), MT_EARG);
    assert_null(track);
    mt_track_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_thread_looks_from_the_start),
        cmocka_unit_test(test_growth_is_told_once_for_each_step_of_it),
        cmocka_unit_test(test_a_long_series_is_thinned_and_keeps_its_first_sample),
        cmocka_unit_test(test_a_forked_child_sees_nothing_and_ends),
        cmocka_unit_test(test_what_cannot_start_leaves_nothing),
    };
    return RUN_TESTS(tests);
}
