/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <memtally/tally.h>
#include <memtally/units.h>

#include "cli/document/internal.h"
#include "cli/moment.h"

#include <string.h>

static void assert_moment(const char *text, enum mt_moment_kind kind, uint64_t time_ns)
{
    struct mt_moment moment = {MT_MOMENT_TIME, 7};
    assert_int_equal(cli_parse_moment(text, &moment, NULL), 0);
    assert_int_equal(moment.kind, kind);
    assert_int_equal(moment.time_ns, time_ns);
}

static void assert_no_moment(const char *text)
{
    struct mt_moment moment = {MT_MOMENT_EXIT, 7};
    struct mt_error error = {0};
    assert_int_equal(cli_parse_moment(text, &moment, &error), MT_EARG);
    assert_non_null(strstr(error.text, "3.5s"));
    assert_int_equal(moment.kind, MT_MOMENT_EXIT);
    assert_int_equal(moment.time_ns, 7);
}

static void test_moments_by_name_and_by_time(void **state)
{
    (void)state;
    assert_moment("peak", MT_MOMENT_PEAK, 0);
    assert_moment("steady", MT_MOMENT_STEADY, 0);
    assert_moment("exit", MT_MOMENT_EXIT, 0);
    assert_moment("3.5s", MT_MOMENT_TIME, 3500000000);
    assert_moment("800ms", MT_MOMENT_TIME, 800000000);
    assert_moment("2min", MT_MOMENT_TIME, 120000000000);
    assert_moment("0s", MT_MOMENT_TIME, 0);
    assert_moment("heap-peak", MT_MOMENT_HEAP_PEAK, 0);
}

static void test_each_category_has_a_moment(void **state)
{
    (void)state;
    static const char *const names[] = {"weights-peak", "kv_cache-peak", "training-peak"};
    static const enum mt_category categories[] = {MT_CATEGORY_WEIGHTS, MT_CATEGORY_KV_CACHE,
                                                  MT_CATEGORY_TRAINING};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mt_moment moment = {0};
        assert_int_equal(cli_parse_moment(names[i], &moment, NULL), 0);
        assert_int_equal(moment.kind, MT_MOMENT_CATEGORY_PEAK);
        assert_int_equal(moment.category, categories[i]);
        assert_string_equal(mt_moment_text(&moment), names[i]);
    }
}

static void test_what_is_no_moment_is_refused(void **state)
{
    (void)state;
    const char *const texts[] = {"none-peak", "category-peak", "-peak", "",     "time",
                                 "Peak",      "3.5",           "s",     "-1s",  "1.2.3s",
                                 "3 s",       "nans",          "0x1s",  "1e3s", "99999999999999s",
                                 "3ss"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_no_moment(texts[i]);
}

static void assert_time(uint64_t time_ns, const char *expected)
{
    char text[CLI_TIME_TEXT];
    assert_string_equal(cli_format_time(time_ns, text), expected);
}

static void test_times_are_written_in_the_unit_that_suits(void **state)
{
    (void)state;
    assert_time(0, "0 ms");
    assert_time(999999999, "999 ms");
    assert_time(1000000000, "1.00 s");
    assert_time(59990000000, "59.99 s");
    assert_time(59999000000, "1 min 00 s");
    assert_time(125000000000, "2 min 05 s");
    assert_time(MT_UNKNOWN, "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moments_by_name_and_by_time),
        cmocka_unit_test(test_each_category_has_a_moment),
        cmocka_unit_test(test_what_is_no_moment_is_refused),
        cmocka_unit_test(test_times_are_written_in_the_unit_that_suits),
    };
    return RUN_TESTS(tests);
}
