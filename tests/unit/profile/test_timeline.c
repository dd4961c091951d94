/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "cli/profile/timeline.h"
#include <memtally/recording.h>
#include <memtally/units.h>

static const struct mt_timeline_point points[] = {
    {10, 100}, {20, 900}, {30, 300}, {40, MT_UNKNOWN}, {50, 500},
};
#define N (sizeof points / sizeof *points)

static void test_peak_is_the_largest_point_within_ends_included(void **state)
{
    (void)state;
    assert_int_equal(profile_peak_within(points, N, 0, 100), 900);
    assert_int_equal(profile_peak_within(points, N, 20, 30), 900);
    assert_int_equal(profile_peak_within(points, N, 21, 30), 300);
    assert_int_equal(profile_peak_within(points, N, 30, 50), 500);
    assert_int_equal(profile_peak_within(points, N, 10, 10), 100);
}

static void test_stretch_between_two_points_has_what_held_before(void **state)
{
    (void)state;
    assert_int_equal(profile_peak_within(points, N, 22, 28), 900);
    assert_int_equal(profile_peak_within(points, N, 60, 70), 500);
}

static void test_stretch_before_the_first_point_is_unknown(void **state)
{
    (void)state;
    assert_true(profile_peak_within(points, N, 0, 9) == MT_UNKNOWN);
    assert_true(profile_peak_within(NULL, 0, 0, 9) == MT_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peak_is_the_largest_point_within_ends_included),
        cmocka_unit_test(test_stretch_between_two_points_has_what_held_before),
        cmocka_unit_test(test_stretch_before_the_first_point_is_unknown),
    };
    return RUN_TESTS(tests);
}
