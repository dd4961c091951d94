/* SPDX-License-Identifier: MIT */
/* Totals of several processes whose pictures or lives do not fall into one moment. */
#include "recorded.h"

#include <string.h>

#define MS 1000000ull

static struct recorded process_at(uint64_t ms, uint32_t pid)
{
    return (struct recorded){.header = {.pid = pid}, .ns = ms * MS};
}

/* A tree of two processes of 100 pages, pictured 10 and `second_ms` after the start. */
static struct mt_tally *tally_of_two(uint64_t second_ms)
{
    static const char maps[] = "10000000-10064000 rw-p 00000000 00:00 0 \n";
    static const uint64_t runs[][3] = {{0x10000, 100, 0}};
    for (uint32_t i = 0; i < 2; i++) {
        struct recorded p = process_at(0, 7 + i);
        recorded_begin(&p, i ? "8-0" : "7-0");
        p.ns = (i ? second_ms : 10) * MS;
        recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                        .maps = maps,
                                                        .rollup = "Rss: 400 kB\n",
                                                        .runs = runs,
                                                        .n_runs = 1});
        recorded_end(&p, 200 * MS);
    }
    return recorded_tally(MT_MOMENT_PEAK, 0);
}

static void test_pictures_of_one_moment_have_a_skew(void **state)
{
    (void)state;
    struct mt_tally *tally = tally_of_two(12);
    assert_int_equal(tally->n_notes, 0);
    assert_true(tally->places[0].skew_known);
    mt_tally_destroy(tally);
}

static void test_pictures_of_different_moments_are_said_to_be_that(void **state)
{
    (void)state;
    struct mt_tally *tally = tally_of_two(130);
    assert_int_equal(tally->n_notes, 1);
    assert_non_null(strstr(tally->notes[0], "up to 120 ms apart"));
    assert_false(tally->places[0].skew_known);
    mt_tally_destroy(tally);
}

static void test_who_did_not_live_at_the_moment_is_listed_apart(void **state)
{
    (void)state;
    static const char maps[] = "10000000-10064000 rw-p 00000000 00:00 0 \n";
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t runs[][3] = {{0x10000, i ? 100 : 50, 0}};
        struct recorded p = process_at(i * 100, 7 + i);
        recorded_begin(&p, i ? "8-0" : "7-0");
        p.ns = (10 + i * 100) * MS;
        recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                        .maps = maps,
                                                        .rollup = "Rss: 400 kB\n",
                                                        .runs = runs,
                                                        .n_runs = 1});
        recorded_end(&p, (50 + i * 100) * MS);
    }
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 1);
    assert_int_equal(tally->processes[0].pid, 8);
    assert_int_equal(tally->n_other_processes, 1);
    assert_int_equal(tally->other_processes[0].pid, 7);
    assert_int_equal(tally->other_processes[0].n_places, 0);
    assert_int_equal(tally->places[0].total_resident_bytes, 100 * PAGE);
    mt_tally_destroy(tally);
}

/* One process has 120 MiB, keeps 50 and gives these back too. To the other came 100 MiB, of which
 * it had touched 60 at a look before that: how much it has touched by then only a later look
 * bounds. */
static struct mt_tally *tally_of_an_unseen_touch(uint64_t second_bytes)
{
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    EVENT(&p, MMAP, 0x10000000, 120 * MIB, 3, 0x22, 0, 0, 0);
    EVENT(&p, LOOK, 50 * MIB);
    p.ns = 20 * MS;
    EVENT(&p, LOOK, 120 * MIB);
    p.ns++;
    EVENT(&p, MUNMAP, 0x10000000, 70 * MIB);
    p.ns = 101 * MS;
    EVENT(&p, LOOK, 50 * MIB);
    p.ns++;
    EVENT(&p, MUNMAP, 0x10000000 + 70 * MIB, 50 * MIB);
    p.ns = 102 * MS;
    EVENT(&p, LOOK, MIB);
    recorded_end(&p, 300 * MS);
    p = process_at(30, 8);
    recorded_begin(&p, "8-0");
    EVENT(&p, LOOK, MIB);
    EVENT(&p, MMAP, 0x10000000, 100 * MIB, 3, 0x22, 0, 0, 0);
    p.ns = 100 * MS;
    EVENT(&p, LOOK, 61 * MIB);
    p.ns = 200 * MS;
    EVENT(&p, LOOK, second_bytes);
    recorded_end(&p, 300 * MS);
    return recorded_tally(MT_MOMENT_PEAK, 0);
}

static const char *note_of(const struct mt_tally *tally, const char *part)
{
    for (size_t i = 0; i < tally->n_notes; i++)
        if (strstr(tally->notes[i], part))
            return tally->notes[i];
    return NULL;
}

static void test_what_may_have_been_touched_between_looks_is_said(void **state)
{
    (void)state;
    struct mt_tally *tally = tally_of_an_unseen_touch(101 * MIB);
    assert_in_range(tally->places[0].total_resident_bytes, 119 * MIB, 125 * MIB);
    assert_non_null(note_of(tally, "up to 151 MiB together"));
    mt_tally_destroy(tally);
}

static void test_what_no_later_look_bears_out_was_not_touched(void **state)
{
    (void)state;
    struct mt_tally *tally = tally_of_an_unseen_touch(61 * MIB);
    assert_null(note_of(tally, "together for a moment"));
    mt_tally_destroy(tally);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, recorded_setup, recorded_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_pictures_of_one_moment_have_a_skew),
        TEST(test_pictures_of_different_moments_are_said_to_be_that),
        TEST(test_who_did_not_live_at_the_moment_is_listed_apart),
        TEST(test_what_may_have_been_touched_between_looks_is_said),
        TEST(test_what_no_later_look_bears_out_was_not_touched),
    };
    return RUN_TESTS(tests);
}
