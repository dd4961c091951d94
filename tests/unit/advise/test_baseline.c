/* SPDX-License-Identifier: MIT */
/* Peaks that are kept in a text: what is read, refused, compared and added. */
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

#include <memtally/tally.h>
#include <memtally/units.h>

#include "advise/baseline.h"

#define MIB (UINT64_C(1) << 20)

static const char kept[] = "# a comment\n"
                           "\n"
                           "a test\n"
                           "    gpu:0   total      100  100 B\n"
                           "    gpu:0   weights     60\n"
                           "\tgpu:1 total 7\n"
                           "m test\n"
                           "    gpu:0   total      3\n";

static struct mt_baseline found_in(const char *text, const char *name)
{
    struct mt_baseline baseline;
    struct mt_error error = {0};
    if (mt_baseline_find(text, strlen(text), name, &baseline, &error) != 0)
        fail_msg("%s", error.text);
    return baseline;
}

static void test_the_most_that_a_device_may_take(void **state)
{
    struct mt_baseline baseline = found_in(kept, "a test");
    (void)state;
    assert_int_equal(baseline.n_peaks, 3);
    assert_int_equal(mt_baseline_most_bytes(&baseline, "gpu:0", 0), 100);
    assert_int_equal(mt_baseline_most_bytes(&baseline, "gpu:0", 0.02), 102);
    assert_int_equal(mt_baseline_most_bytes(&baseline, "gpu:0", 0.027), 103); /* rounded */
    assert_int_equal(mt_baseline_most_bytes(&baseline, "gpu:1", 0), 7);
    /* A device that is not there may take nothing, whatever is tolerated. */
    assert_int_equal(mt_baseline_most_bytes(&baseline, "gpu:2", 10), 0);
    baseline = found_in(kept, "m test");
    assert_int_equal(mt_baseline_most_bytes(&baseline, "gpu:0", 0), 3);
    assert_int_equal(baseline.n_peaks, 1);
}

static void test_a_bound_past_all_numbers_is_none(void **state)
{
    struct mt_baseline baseline = found_in("x\n gpu:0 total 18446744073709551615\n", "x");
    (void)state;
    assert_int_equal(mt_baseline_most_bytes(&baseline, "gpu:0", 0), UINT64_MAX);
    assert_int_equal(mt_baseline_most_bytes(&baseline, "gpu:0", 1), UINT64_MAX);
}

static void test_a_name_that_is_not_there_has_its_place_among_the_others(void **state)
{
    static const struct {
        const char *name;
        const char *before; /* "" is the end */
    } cases[] = {{"a", "a test\n"}, {"a tesu", "m test\n"}, {"Z", "a test\n"},
                 {"n", ""},         {"m", "m test\n"},      {"\xc3\xa9", ""}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_baseline baseline = found_in(kept, cases[i].name);
        assert_null(baseline.peaks);
        assert_int_equal(strncmp(baseline.before, cases[i].before, strlen(cases[i].before)), 0);
        assert_int_equal(baseline.before == baseline.end, !*cases[i].before);
    }
}

static void test_what_is_wrong_is_named_by_line_and_byte(void **state)
{
    static const struct {
        const char *text;
        size_t offset;
        const char *words;
    } cases[] = {
        {"  gpu:0 total 1\n", 0, "line 1: a peak comes before any name"},
        {"# c\n\n  gpu:0 total 1\nx\n", 5, "line 3: a peak comes before any name"},
        {"x\n gpu:0 total\n", 2, "line 2: a peak is a place, a category and a number of bytes"},
        {"x\n gpu:0 total 1k\n", 2, "line 2: a peak is"},
        {"x\n gpu:0 total -1\n", 2, "line 2: a peak is"},
        {"x\n gpu:0 total 18446744073709551616\n", 2, "line 2: a peak is"},
        {"x\n gpu:0 total 1\n gpu:0 total 2\n", 17, "line 3: the place has the category twice"},
        {"x\n gpu:0 total 1\ny\nx\n", 19, "line 4: the name is here twice"},
        {"y\n gpu:0\n", 2, "line 2: a peak is"}, /* of another name too */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_baseline baseline;
        struct mt_error error = {0};
        assert_int_equal(
            mt_baseline_find(cases[i].text, strlen(cases[i].text), "x", &baseline, &error),
            MT_EFORMAT);
        assert_int_equal(error.offset, cases[i].offset);
        if (!strstr(error.text, cases[i].words))
            fail_msg("'%s' does not say '%s'", error.text, cases[i].words);
    }
}

/* Files that another system wrote, or that end without a line's end, are read all the same. */
static void test_ends_of_lines_may_differ(void **state)
{
    struct mt_baseline baseline = found_in("x\r\n  gpu:0 total 5\r\n\r\n", "x");
    (void)state;
    assert_int_equal(mt_baseline_most_bytes(&baseline, "gpu:0", 0), 5);
    baseline = found_in("x\n  gpu:0 total 5", "x");
    assert_int_equal(mt_baseline_most_bytes(&baseline, "gpu:0", 0), 5);
    assert_null(found_in("", "x").peaks);
}

static void test_a_name_has_so_many_peaks_and_no_more(void **state)
{
    static char text[64 * 1100];
    struct mt_baseline baseline;
    struct mt_error error = {0};
    size_t length = (size_t)sprintf(text, "x\n");
    (void)state;
    for (int i = 0; i < 1024; i++)
        length += (size_t)sprintf(text + length, " gpu:%d total 1\n", i);
    assert_int_equal(mt_baseline_find(text, length, "x", &baseline, &error), 0);
    assert_int_equal(baseline.n_peaks, 1024);
    length += (size_t)sprintf(text + length, " gpu:1024 total 1\n");
    assert_int_equal(mt_baseline_find(text, length, "x", &baseline, &error), MT_EFORMAT);
    assert_non_null(strstr(error.text, "line 1026: the name has too many peaks"));
}

/* ---- beside a tally ---- */

static const struct mt_tally_row rows[] = {
    {.category = MT_CATEGORY_KV_CACHE, .allocated_bytes = 10 * MIB},
    {.category = MT_CATEGORY_WEIGHTS, .allocated_bytes = 60 * MIB},
    {.category = MT_CATEGORY_CACHED, .allocated_bytes = MT_UNKNOWN},
    {.category = MT_CATEGORY_CONTEXT, .allocated_bytes = 10 * MIB},
    {.category = MT_CATEGORY_WORKSPACE, .allocated_bytes = 0},
};
static const struct mt_tally_place places[] = {
    {.place = "host", .total_allocated_bytes = 5, .n_rows = 0},
    {.place = "gpu:0", .total_allocated_bytes = 80 * MIB, .n_rows = 5, .rows = rows},
    {.place = "gpu:1", .total_allocated_bytes = 0},
    {.place = "gpu:2", .total_allocated_bytes = MT_UNKNOWN},
};
static const struct mt_tally tally = {.n_places = 4, .places = places};

static void assert_tells(const char *text, const char *expected)
{
    struct mt_baseline baseline = found_in(text, "x");
    struct mt_strbuf out = {0};
    mt_baseline_tell(&baseline, &places[1], &out);
    assert_string_equal(mt_strbuf_text(&out), expected);
    mt_strbuf_finish(&out);
}

static void test_growth_is_told_by_category(void **state)
{
    (void)state;
    assert_tells("x\n gpu:0 total 67108864\n gpu:0 weights 62914560\n gpu:0 kv_cache 8388608\n",
                 "gpu:0 takes 80.00 MiB, 16.00 MiB (25.0 %) more than its baseline of 64.00 MiB: "
                 "kv_cache 2.00 MiB more, context 10.00 MiB more");
    /* What shrank beside it is no reason. */
    assert_tells("x\n gpu:0 total 67108864\n gpu:0 weights 99999999\n gpu:0 kv_cache 10485760\n"
                 " gpu:0 context 10485760\n",
                 "gpu:0 takes 80.00 MiB, 16.00 MiB (25.0 %) more than its baseline of 64.00 MiB");
    assert_tells("x\n", "gpu:0 takes 80.00 MiB, 80.00 MiB more than its baseline of 0 B: "
                        "kv_cache 10.00 MiB more, weights 60.00 MiB more, context 10.00 MiB more");
}

static void assert_adds(const char *text, const char *name, const char *expected)
{
    struct mt_baseline baseline = found_in(text, name);
    struct mt_strbuf out = {0};
    mt_baseline_add(&baseline, name, &tally, &out);
    assert_string_equal(mt_strbuf_text(&out), expected);
    /* What was added is found, and nothing of the others was lost. */
    baseline = found_in(mt_strbuf_text(&out), name);
    assert_int_equal(mt_baseline_most_bytes(&baseline, "gpu:0", 0), 80 * MIB);
    assert_int_equal(baseline.n_peaks, 4);
    mt_strbuf_finish(&out);
}

#define ADDED                                                                                      \
    "    gpu:0   total               83886080  80.00 MiB\n"                                        \
    "    gpu:0   weights             62914560  60.00 MiB\n"                                        \
    "    gpu:0   context             10485760  10.00 MiB\n"                                        \
    "    gpu:0   kv_cache            10485760  10.00 MiB\n"

/* The total first, then the largest; of equal ones in the order of names. Neither the host nor what
 * is unknown or nothing stands there. */
static void test_devices_peaks_are_added_in_the_order_of_names(void **state)
{
    (void)state;
    assert_adds("a\n gpu:0 total 1\nz\n gpu:0 total 2\n", "m",
                "a\n gpu:0 total 1\nm\n" ADDED "z\n gpu:0 total 2\n");
    assert_adds("a\n gpu:0 total 1", "m", "a\n gpu:0 total 1\nm\n" ADDED);
    assert_adds("b\n", "a", "a\n" ADDED "b\n");
}

static void test_a_new_file_begins_with_what_it_is(void **state)
{
    (void)state;
    assert_adds("", "m",
                "# Peaks of device memory by test or command line, place and category.\n"
                "# What is not here is added. Delete the lines of one to take what it needs "
                "now.\nm\n" ADDED);
}

/* pytest's plug-in takes the same bytes for blanks: those of ASCII. */
static void test_a_name_is_bytes_and_blanks_are_those_of_ascii(void **state)
{
    static const char text[] = "\xff test\v\r\n"
                               "\vgpu:0\ftotal\t18446744073709551615\r\n"
                               "\xc2\xa0 indented by no blank\n";
    const char *much = "a\n gpu:0 total 18446744073709551616\n";
    struct mt_baseline found = found_in(text, "\xff test");
    struct mt_error error = {0};
    (void)state;
    assert_true(mt_baseline_most_bytes(&found, "gpu:0", 0) == UINT64_MAX);
    assert_int_equal(mt_baseline_most_bytes(&found, "gpu:1", 1e300), 0);
    assert_non_null(found_in(text, "\xc2\xa0 indented by no blank").peaks);
    assert_int_equal(mt_baseline_find(much, strlen(much), "a", &found, &error), MT_EFORMAT);
    assert_int_equal(error.offset, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_most_that_a_device_may_take),
        cmocka_unit_test(test_a_bound_past_all_numbers_is_none),
        cmocka_unit_test(test_a_name_that_is_not_there_has_its_place_among_the_others),
        cmocka_unit_test(test_what_is_wrong_is_named_by_line_and_byte),
        cmocka_unit_test(test_ends_of_lines_may_differ),
        cmocka_unit_test(test_a_name_has_so_many_peaks_and_no_more),
        cmocka_unit_test(test_growth_is_told_by_category),
        cmocka_unit_test(test_devices_peaks_are_added_in_the_order_of_names),
        cmocka_unit_test(test_a_new_file_begins_with_what_it_is),
        cmocka_unit_test(test_a_name_is_bytes_and_blanks_are_those_of_ascii),
    };
    return RUN_TESTS(tests);
}
