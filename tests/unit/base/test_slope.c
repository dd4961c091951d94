/* SPDX-License-Identifier: MIT */
/* Slopes that were worked out by hand. */
#include "tests/support/unit.h"

#include "base/slope.h"

#include <math.h>

static void test_the_middle_is_the_median_of_all_pairs(void **state)
{
    /* 2, 2, 2, 98/3, 48 and 94: halfway between 2 and 98/3. */
    const double x[] = {1, 2, 3, 4};
    const double y[] = {2, 4, 6, 100};
    (void)state;
    struct mt_slope slope = mt_slope_of(x, y, 4);
    assert_true(fabs(slope.middle - (2 + 98 / 3.0) / 2) < 1e-12);
    assert_true(slope.low == 2 && slope.high == 94);
}

static void test_the_interval_is_sens(void **state)
{
    /* The slope of a parabola between i and j is i + j: 45 of them, 9 in the middle. The variance
     * is 10 * 9 * 25 / 18 = 125, so the interval begins 0.5 * 2.5758 * sqrt(125) = 14.4 ranks below
     * 22.5: at the ninth smallest, of which 1, 2, 3, 3, 4, 4, 5, 5, 5 are the first. */
    double x[10];
    double y[10];
    (void)state;
    for (int i = 0; i < 10; i++) {
        x[i] = i;
        y[i] = i * i;
    }
    struct mt_slope slope = mt_slope_of(x, y, 10);
    assert_true(mt_kendall_variance(10) == 125);
    assert_true(slope.middle == 9 && slope.low == 5 && slope.high == 13);
}

static void test_pairs_of_one_moment_have_no_slope(void **state)
{
    const double x[] = {3, 3, 4};
    const double y[] = {1, 9, 9};
    (void)state;
    assert_true(mt_slope_of(x, y, 3).middle == 4);
    assert_true(mt_slope_of(x, y, 2).middle == 0);
    assert_true(mt_slope_of(x, y, 1).middle == 0 && mt_slope_of(x, y, 0).high == 0);
}

static void test_one_odd_point_moves_the_middle_little(void **state)
{
    double x[MT_SLOPE_POINTS + 10];
    double y[MT_SLOPE_POINTS + 10];
    (void)state;
    for (size_t i = 0; i < MT_SLOPE_POINTS + 10; i++) {
        x[i] = (double)i;
        y[i] = 3 * (double)i;
    }
    y[20] = 1e9;
    /* What is past the most points is not looked at. */
    y[MT_SLOPE_POINTS] = -1e9;
    struct mt_slope slope = mt_slope_of(x, y, MT_SLOPE_POINTS + 10);
    assert_true(slope.middle == 3 && slope.low == 3 && slope.high == 3);
}

static void test_medians(void **state)
{
    double odd[] = {5, 1, 3};
    double even[] = {4, 1, 3, 2};
    (void)state;
    assert_true(mt_median(odd, 3) == 3 && mt_median(even, 4) == 2.5 && mt_median(odd, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_middle_is_the_median_of_all_pairs),
        cmocka_unit_test(test_the_interval_is_sens),
        cmocka_unit_test(test_pairs_of_one_moment_have_no_slope),
        cmocka_unit_test(test_one_odd_point_moves_the_middle_little),
        cmocka_unit_test(test_medians),
    };
    return RUN_TESTS(tests);
}
