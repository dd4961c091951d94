/* SPDX-License-Identifier: MIT */
/* What series look like whose rule the test wrote down. */
#include "tests/support/unit.h"

#include <memtally/track.h>
#include <memtally/units.h>

#define MIB    (UINT64_C(1) << 20)
#define SECOND UINT64_C(1000000000)
#define N      400

/* A number from 0 to `below`, the same in each run. */
static uint64_t noise(uint64_t below)
{
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return below ? (state >> 33) % below : 0;
}

static struct mt_trend judge(uint64_t (*bytes)(size_t i), uint64_t noise_bytes, size_t n)
{
    struct mt_trend_point points[N];
    struct mt_trend trend;
    for (size_t i = 0; i < n; i++)
        points[i] = (struct mt_trend_point){.time_ns = i * SECOND,
                                            .held_bytes = bytes(i) + noise(noise_bytes),
                                            .used_bytes = MT_UNKNOWN};
    mt_trend_judge(points, n, &trend);
    assert_true(trend.confidence_ratio >= 0 && trend.confidence_ratio <= 1);
    return trend;
}

static uint64_t flat(size_t i)
{
    (void)i;
    return 500 * MIB;
}

static uint64_t leak(size_t i)
{
    return 500 * MIB + i * MIB / 4;
}

static uint64_t leak_of_short_lived(size_t i)
{
    return leak(i) + i % 10 * 20 * MIB;
}

static uint64_t sawtooth(size_t i)
{
    return 500 * MIB + i % 20 * 5 * MIB;
}

static uint64_t warm_up(size_t i)
{
    return i < N / 4 ? 200 * MIB + i * 3 * MIB : 500 * MIB;
}

static uint64_t step(size_t i)
{
    return i < N / 2 ? 200 * MIB : 500 * MIB;
}

static uint64_t step_at_the_end(size_t i)
{
    return i < N * 9 / 10 ? 200 * MIB : 500 * MIB;
}

static uint64_t step_down(size_t i)
{
    return i < N / 3 ? 500 * MIB : 100 * MIB;
}

static uint64_t warm_up_then_leak(size_t i)
{
    return warm_up(i) + i * MIB / 4;
}

static void test_each_pattern_is_told_from_the_others(void **state)
{
    (void)state;
    const struct {
        uint64_t (*bytes)(size_t i);
        enum mt_trend_pattern expected;
    } rows[] = {
        {flat, MT_TREND_STEADY},
        {leak, MT_TREND_LEAK},
        {sawtooth, MT_TREND_SAWTOOTH},
        {leak_of_short_lived, MT_TREND_LEAK},
        {warm_up, MT_TREND_WARM_UP},
        {step, MT_TREND_STEP},
        {step_at_the_end, MT_TREND_STEP},
        {step_down, MT_TREND_STEP},
        {warm_up_then_leak, MT_TREND_LEAK},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        for (uint64_t i = 0; i < 20; i++) {
            struct mt_trend trend = judge(rows[row].bytes, i % 5 * MIB / 2, N);
            if (trend.pattern != rows[row].expected)
                fail_msg("row %zu: %s", row, mt_trend_pattern_name(trend.pattern));
            assert_true(trend.confidence_ratio > 0.5);
        }
    }
}

/* 0.25 MiB a second for 399 seconds, whatever stands on top of it. */
static void test_the_growth_of_a_leak_is_its_slope(void **state)
{
    (void)state;
    uint64_t (*const leaks[])(size_t i) = {leak, leak_of_short_lived};
    for (size_t i = 0; i < 2; i++) {
        struct mt_trend trend = judge(leaks[i], 0, N);
        assert_true(trend.bytes_per_second > 0.95 * MIB / 4 &&
                    trend.bytes_per_second < 1.05 * MIB / 4);
        assert_in_range(trend.growth_bytes, 90 * MIB, 105 * MIB);
    }
    assert_int_equal(judge(leak, 0, N).low_bytes, 500 * MIB);
    assert_int_equal(judge(leak, 0, N).high_bytes, leak(N - 1));
}

/* A test at 1 % may call 10 of 1,000 series of noise that is more than what counts as noise a leak.
 */
static void test_noise_is_seldom_a_leak(void **state)
{
    (void)state;
    size_t leaks = 0;
    for (size_t i = 0; i < 1000; i++)
        leaks += judge(flat, 40 * MIB, 100).pattern == MT_TREND_LEAK;
    assert_in_range(leaks, 0, 10);
}

static void test_few_points_say_nothing(void **state)
{
    (void)state;
    struct mt_trend trend = {.growth_bytes = 1};
    mt_trend_judge(NULL, 0, &trend);
    assert_int_equal(trend.pattern, MT_TREND_SHORT);
    assert_int_equal(trend.growth_bytes, 0);
    assert_int_equal(judge(leak, 0, MT_TREND_POINTS - 1).pattern, MT_TREND_SHORT);
    assert_int_equal(judge(leak, 0, MT_TREND_POINTS).pattern, MT_TREND_STEADY);
}

static void test_what_is_held_and_not_used_grows_by_fragmentation(void **state)
{
    (void)state;
    struct mt_trend_point points[N];
    struct mt_trend trend;
    for (size_t i = 0; i < N; i++)
        points[i] = (struct mt_trend_point){i * SECOND, leak(i), 400 * MIB};
    mt_trend_judge(points, N, &trend);
    assert_int_equal(trend.pattern, MT_TREND_FRAGMENTATION);
    for (size_t i = 0; i < N; i++)
        points[i].used_bytes = leak(i) - 50 * MIB;
    mt_trend_judge(points, N, &trend);
    assert_int_equal(trend.pattern, MT_TREND_LEAK);
}

static void test_points_of_one_moment_are_taken(void **state)
{
    (void)state;
    struct mt_trend_point points[N];
    struct mt_trend trend;
    for (size_t i = 0; i < N; i++)
        points[i] = (struct mt_trend_point){0, noise(MT_UNKNOWN), noise(MT_UNKNOWN)};
    mt_trend_judge(points, N, &trend);
    assert_true(trend.confidence_ratio >= 0 && trend.confidence_ratio <= 1);
    assert_string_equal(mt_trend_pattern_name((enum mt_trend_pattern)99), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_pattern_is_told_from_the_others),
        cmocka_unit_test(test_the_growth_of_a_leak_is_its_slope),
        cmocka_unit_test(test_noise_is_seldom_a_leak),
        cmocka_unit_test(test_few_points_say_nothing),
        cmocka_unit_test(test_what_is_held_and_not_used_grows_by_fragmentation),
        cmocka_unit_test(test_points_of_one_moment_are_taken),
    };
    return RUN_TESTS(tests);
}
