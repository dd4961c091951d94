/* SPDX-License-Identifier: MIT */
/* Blocks in the default depth: large ones one by one, small ones in total and as a sample. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/harness.h"

#define INTERVAL 524288.0

static void test_blocks_from_64_kib_are_events_and_smaller_ones_are_not(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "large");
    (void)state;
    assert_true(exited(ran, 0));
    char *seen = operations_of(the_file(ran), "large");
    char *looks; /* a free of megabytes may look before */
    while ((looks = strstr(seen, "LOOK\n")) != NULL)
        memmove(looks, looks + 5, strlen(looks + 5) + 1);
    /* One of the blocks below may be a sample. */
    char *sample = strstr(seen, "SAMPLE");
    if (!sample)
        assert_string_equal(seen, ran->out);
    free(seen);
    ran_free(ran);
}

static void totals_of_run(const char *const n, uint64_t totals[4], uint64_t said[4])
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "small", n);
    assert_true(exited(ran, 0));
    totals_of(the_file(ran), totals);
    said[0] = number_after(ran->out, "allocs=");
    said[1] = number_after(ran->out, "alloc_bytes=");
    said[2] = number_after(ran->out, " frees=");
    said[3] = number_after(ran->out, "free_bytes=");
    ran_free(ran);
}

/* What the program's start allocates is the same in both runs, so that the difference is all that
 * the child counted for itself. */
static void test_totals_of_small_blocks_are_exact(void **state)
{
    uint64_t none[4], some[4], said_none[4], said[4];
    (void)state;
    totals_of_run("000000", none, said_none);
    totals_of_run("123456", some, said);
    assert_int_equal(said_none[0], 0);
    assert_int_equal(said[0], 123456);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(some[i] - none[i], said[i]);
}

static double scaled(const struct mt_record_file *file, size_t *n_samples)
{
    size_t n_events;
    struct mt_event *events = events_of(file, &n_events);
    double sum = 0;
    *n_samples = 0;
    for (size_t i = 0; i < n_events; i++) {
        if (events[i].op != MT_EVENT_SAMPLE_ALLOC)
            continue;
        double size = (double)events[i].field[1];
        sum += size / -expm1(-size / INTERVAL);
        ++*n_samples;
    }
    free(events);
    return sum;
}

/* A sample stands for size / p bytes with p = 1 - exp(-size / interval). The variance of the sum is
 * sum(size² (1 - p) / p), which is below bytes × interval; six standard deviations happen by chance
 * once in 500 million runs. */
static void test_samples_scale_to_what_was_allocated(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "small", "150000", "40000");
    size_t n_samples;
    (void)state;
    assert_true(exited(ran, 0));
    double bytes = (double)number_after(ran->out, "alloc_bytes=");
    double estimate = scaled(the_file(ran), &n_samples);
    double bound = 6 * sqrt(bytes * INTERVAL);
    assert_int_equal(the_file(ran)->header.samples_dropped, 0);
    assert_true(n_samples > 3000);
    if (fabs(estimate - bytes) > bound)
        fail_msg("%.0f bytes estimated, %.0f allocated, bound %.0f", estimate, bytes, bound);
    ran_free(ran);
}

/* Each sample that ends is one that began, at the same address. */
static void test_a_sample_ends_when_its_block_is_freed(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "small", "150000", "40000");
    size_t n_events, began = 0, ended = 0;
    (void)state;
    assert_true(exited(ran, 0));
    struct mt_event *events = events_of(the_file(ran), &n_events);
    for (size_t i = 0; i < n_events; i++) {
        began += events[i].op == MT_EVENT_SAMPLE_ALLOC;
        if (events[i].op != MT_EVENT_SAMPLE_FREE)
            continue;
        ended++;
        size_t j = i;
        while (j > 0 && (events[j - 1].field[0] != events[i].field[0] ||
                         (events[j - 1].op != MT_EVENT_SAMPLE_ALLOC &&
                          events[j - 1].op != MT_EVENT_SAMPLE_FREE)))
            j--;
        assert_true(j > 0 && events[j - 1].op == MT_EVENT_SAMPLE_ALLOC);
    }
    /* 512 of 150,000 blocks are left: samples of all but about 0.34 % end. */
    assert_true(ended <= began && began - ended < 100);
    free(events);
    ran_free(ran);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_from_64_kib_are_events_and_smaller_ones_are_not),
        cmocka_unit_test(test_totals_of_small_blocks_are_exact),
        cmocka_unit_test(test_samples_scale_to_what_was_allocated),
        cmocka_unit_test(test_a_sample_ends_when_its_block_is_freed),
    };
    return RUN_TESTS(tests);
}
