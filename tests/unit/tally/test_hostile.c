/* SPDX-License-Identifier: MIT */
/* Recordings that nobody's program leaves: with each of them a reader that goes through all that
 * there is for every event would take hours. */
#include "moments.h"

#include <stdio.h>
#include <stdlib.h>

#define MANY  200000ull
#define FIRST 0x100000ull /* a page number */

/* A picture of so many single pages, every other one. */
static void picture_of_single_pages(struct recorded *p, uint64_t n)
{
    static const char maps[] = "100000000-200000000 rw-p 00000000 00:00 0\n";
    uint64_t(*runs)[3] = calloc(n, sizeof *runs);
    assert_non_null(runs);
    for (uint64_t i = 0; i < n; i++) {
        runs[i][0] = FIRST + 2 * i;
        runs[i][1] = 1;
    }
    recorded_picture(p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                   .resident_bytes = n * PAGE,
                                                   .maps = maps,
                                                   .runs = (const uint64_t(*)[3])runs,
                                                   .n_runs = n});
    free(runs);
}

static uint64_t pages_at(uint64_t ms)
{
    struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, ms * MS);
    uint64_t bytes = tally->places[0].total_resident_bytes;
    mt_tally_destroy(tally);
    return bytes / PAGE;
}

/* Each of the events gives all of the picture's pages back, the first of them in truth. */
static void test_all_of_many_runs_given_back_many_times(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    p.ns = 10 * MS;
    picture_of_single_pages(&p, MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        p.ns = 11 * MS + i;
        EVENT(&p, MADVISE, FIRST * PAGE, 2 * MANY * PAGE, 4);
    }
    recorded_end(&p, 20 * MS);
    assert_int_equal(pages_at(10), MANY);
    assert_int_equal(pages_at(15), 0);
}

/* After the moment single pages are mapped, and all of them unmapped as often; a picture comes
 * last. At the moment none of the mapped ones was there, and all between them were. */
static void test_all_of_many_mappings_unmapped_many_times(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    look(&p, 5, MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        p.ns = 10 * MS + i;
        EVENT(&p, MMAP, (FIRST + 2 * i) * PAGE, PAGE, 3, 0, 0, 0, 0);
    }
    for (uint64_t i = 0; i < MANY; i++) {
        p.ns = 11 * MS + i;
        EVENT(&p, MUNMAP, FIRST * PAGE, 2 * MANY * PAGE);
    }
    look(&p, 12, 10);
    p.ns = 13 * MS;
    picture_of_single_pages(&p, 10);
    recorded_end(&p, 20 * MS);
    assert_int_equal(pages_at(5), MANY);
}

/* A mapping of many runs goes to and fro. */
static void test_many_runs_moved_many_times(void **state)
{
    (void)state;
    const uint64_t away = FIRST + 4 * MANY;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    p.ns = 10 * MS;
    picture_of_single_pages(&p, MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        p.ns = 11 * MS + i;
        EVENT(&p, MREMAP, (i % 2 ? away : FIRST) * PAGE, 2 * MANY * PAGE,
              (i % 2 ? FIRST : away) * PAGE, 2 * MANY * PAGE, 1);
    }
    recorded_end(&p, 20 * MS);
    assert_int_equal(pages_at(15), MANY);
}

/* Labels on all pages of a mapping go to and fro with it; `took` is how long each move is said to
 * have taken. */
static void move_labels(uint64_t took)
{
    const uint64_t away = FIRST + 4 * MANY;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    p.ns = 9 * MS;
    uint64_t name = recorded_string(&p, "weights");
    picture_of_single_pages(&p, MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        p.ns = 10 * MS + i;
        EVENT(&p, LABEL, (FIRST + 2 * i) * PAGE, PAGE, MT_CATEGORY_WEIGHTS, name);
    }
    for (uint64_t i = 0; i < MANY; i++) {
        p.ns = 11 * MS + i;
        EVENT(&p, MREMAP, (i % 2 ? away : FIRST) * PAGE, 2 * MANY * PAGE,
              (i % 2 ? FIRST : away) * PAGE, 2 * MANY * PAGE, took);
    }
    recorded_end(&p, 20 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, 15 * MS);
    const struct mt_tally_row *row = &tally->places[0].rows[0];
    assert_int_equal(row->category, MT_CATEGORY_WEIGHTS);
    assert_int_equal(row->resident_bytes, MANY * PAGE);
    mt_tally_destroy(tally);
}

static void test_many_labels_moved_many_times(void **state)
{
    (void)state;
    move_labels(1);
}

static void test_many_labels_that_came_while_they_were_moved(void **state)
{
    (void)state;
    move_labels(5 * MS);
}

/* Each process of a watched tree was forked from the one before it, or so its command says; all of
 * them have the same number, and are looked at many times. */
static void test_many_processes_that_may_be_each_others_parents(void **state)
{
    (void)state;
    const uint64_t n = MANY / 2;
    struct recorded w = watch_at(0);
    recorded_begin(&w, "watch");
    for (uint64_t i = 0; i < n; i++)
        seen(&w, 1 + i, 7, 7, "worker", 0);
    for (uint64_t i = 0; i < n; i++)
        seen(&w, 1 + n, 8 + i, 7, "worker", 0);
    for (uint64_t i = 0; i < n; i++) {
        w.ns = (n + 100 + i) * MS;
        EVENT(&w, PROCESS_SAMPLE, 8 + i, PAGE, PAGE);
    }
    for (uint64_t i = 0; i < n; i++)
        ended(&w, 3 * n + i, 8 + i, MT_PROCESS_EXITED, 0);
    recorded_end(&w, 5 * n * MS);
    assert_int_equal(pages_at(3 * n - 1), n);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, recorded_setup, recorded_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_all_of_many_runs_given_back_many_times),
        TEST(test_all_of_many_mappings_unmapped_many_times),
        TEST(test_many_runs_moved_many_times),
        TEST(test_many_labels_moved_many_times),
        TEST(test_many_labels_that_came_while_they_were_moved),
        TEST(test_many_processes_that_may_be_each_others_parents),
    };
    return RUN_TESTS(tests);
}
