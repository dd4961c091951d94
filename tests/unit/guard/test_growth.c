/* SPDX-License-Identifier: MIT */
/* Leaks in made series, and in captured ones of real programs (series/). A made one is a level with
 * what programs do to it, of a fixed seed; it has a leak or has none because it was made so.
 * Thresholds were tuned on the seeds of the ordinary run; `test_growth SEED` makes other series. No
 * threshold was tuned on a captured one. */
#include "tests/support/unit.h"

#include <memtally/units.h>

#include "guard/growth.h"
#include "tests/unit/guard/series_dir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MINUTE_S  60.0
#define SERIES    10000u
#define LEVEL     4e9
#define AVAILABLE (uint64_t)1000000000u

/* ---- chance ---- */

static uint64_t seed;
static uint64_t other_seed; /* 0: those of the ordinary run */

static double chance(double low, double high)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(seed >> 11) / 9007199254740992.0;
}

/* Normal, by Box and Muller. */
static double normal(void)
{
    return sqrt(-2 * log(chance(1e-12, 1))) * cos(6.283185307179586 * chance(0, 1));
}

/* ---- series ---- */

enum shape { FLAT, COLLECTOR, WARM_UP, CACHE, PHASES, WAVES, N_SHAPES };

struct series {
    enum shape shape;
    double leak_per_minute; /* of the level */
    double leak_from_s;
    double leak_every_s;    /* it takes memory in pieces; 0: all the time */
    double noise;           /* of the level, one standard deviation */
    double memory_of_noise; /* of the noise before */
    double high;            /* of the level */
    double period_s;
    double begin_s;
};

static double shape_at(const struct series *series, double s)
{
    double since = s - series->begin_s;
    switch (series->shape) {
    case COLLECTOR: /* garbage piles up and is collected, and for a while there is none */
        return series->high * fmax(fmod(s, series->period_s) / series->period_s - 0.4, 0);
    case WARM_UP:
        return series->high * 10 * (1 - exp(-s / series->period_s));
    case CACHE: /* fills and is full */
        return series->high * 5 * fmin(fmax(since, 0) / series->period_s, 1);
    case PHASES: /* a second model is loaded, and a third */
        return series->high * 5 * ((since > 0) + (since > 3 * MINUTE_S + series->period_s));
    case WAVES: /* requests come and go */
        return series->high * (fmod(s, series->period_s) * 2 > series->period_s);
    default:
        return 0;
    }
}

static double leaked_at(const struct series *series, double s)
{
    double since = fmax(s - series->leak_from_s, 0);
    if (series->leak_every_s > 0)
        since = floor(since / series->leak_every_s) * series->leak_every_s;
    return series->leak_per_minute * since / MINUTE_S;
}

/* When the first alarm comes, in seconds of the series, or -1. */
static double alarm_of(const struct series *series, double until_s, double step_s)
{
    struct mt_growth_bins trend = {0};
    struct mt_monitor_growth growth;
    double noise = 0;
    for (double s = 0; s <= until_s; s += step_s) {
        double kept = series->memory_of_noise;
        noise = kept * noise + sqrt(1 - kept * kept) * series->noise * normal();
        double level = LEVEL * (1 + shape_at(series, s) + leaked_at(series, s) + noise);
        if (!mt_growth_add(&trend, (uint64_t)(s * 1e9), (uint64_t)level))
            continue;
        mt_growth_of(&trend, AVAILABLE, &growth);
        if (growth.leak != MT_LEAK_NONE)
            return s;
    }
    return -1;
}

static double chance_step(void)
{
    static const double steps[] = {0.5, 1, 5, 10};
    return steps[(int)chance(0, 4)];
}

static void test_every_leak_is_found_within_ten_minutes(void **state)
{
    unsigned n_missed = 0;
    double latest_s = 0;
    (void)state;
    seed = 18 + other_seed;
    for (unsigned i = 0; i < SERIES; i++) {
        /* Shapes that come back to their level within a bin; waves and the like would hide a leak
         * from anyone for as long as they last. */
        struct series series = {.shape = chance(0, 1) < 0.3 ? COLLECTOR : FLAT,
                                .leak_per_minute = 0.002 * pow(10, chance(0, 2)),
                                .leak_from_s = chance(0, 1) < 0.5 ? 0 : chance(0, 10 * MINUTE_S),
                                .leak_every_s = chance(0, 1) < 0.5 ? 0 : chance(1, 20),
                                .noise = chance(0, 0.001),
                                .memory_of_noise = chance(0, 0.9),
                                .high = chance(0, 0.1),
                                .period_s = chance(2, 10)};
        double step_s = series.shape == COLLECTOR ? 0.5 : chance_step();
        double at_s = alarm_of(&series, series.leak_from_s + 10 * MINUTE_S, step_s);
        if (at_s < 0) {
            n_missed++;
            print_message("missed: shape %d, %g a minute, every %g s, noise %g (%g), collects %g "
                          "every %g s\n",
                          (int)series.shape, series.leak_per_minute, series.leak_every_s,
                          series.noise, series.memory_of_noise, series.high, series.period_s);
        }
        latest_s = fmax(latest_s, at_s - series.leak_from_s);
    }
    print_message("# %u of %u leaks missed; the last was found after %.0f s\n", n_missed, SERIES,
                  latest_s);
    assert_int_equal(n_missed, 0);
}

static void test_at_most_one_in_a_hundred_others_is_called_a_leak(void **state)
{
    unsigned n_false = 0;
    unsigned n_false_of[N_SHAPES] = {0};
    (void)state;
    seed = 81 + other_seed;
    for (unsigned i = 0; i < SERIES; i++) {
        struct series series = {.shape = (enum shape)(i % N_SHAPES),
                                .noise = chance(0, 0.001),
                                .memory_of_noise = chance(0, 0.9),
                                .high = chance(0.01, 0.3),
                                .period_s = chance(10, 2.5 * MINUTE_S),
                                .begin_s = chance(0, 10 * MINUTE_S)};
        if (alarm_of(&series, 20 * MINUTE_S, chance_step()) >= 0) {
            n_false++;
            n_false_of[series.shape]++;
        }
    }
    print_message(
        "# %u of %u false: flat %u, collector %u, warm-up %u, cache %u, phases %u, waves %u\n",
        n_false, SERIES, n_false_of[FLAT], n_false_of[COLLECTOR], n_false_of[WARM_UP],
        n_false_of[CACHE], n_false_of[PHASES], n_false_of[WAVES]);
    assert_true(n_false <= SERIES / 100);
}

static void test_a_fast_leak_is_found_after_five_minutes(void **state)
{
    /* 5 % a minute is 25 % in five. */
    struct series series = {.leak_per_minute = 0.05};
    (void)state;
    assert_true(alarm_of(&series, 10 * MINUTE_S, 1) <= 5.5 * MINUTE_S);
    /* 3 % a minute is 15 %: slow, which takes eight. */
    series.leak_per_minute = 0.03;
    double at_s = alarm_of(&series, 10 * MINUTE_S, 1);
    assert_true(at_s > 5.5 * MINUTE_S && at_s <= 8.5 * MINUTE_S);
}

static void test_the_forecast_is_what_is_available_by_the_slope(void **state)
{
    struct mt_growth_bins trend = {0};
    struct mt_monitor_growth growth;
    (void)state;
    /* 1 MB a second, without noise: 1 GB lasts 1,000 seconds. */
    for (uint64_t s = 0; s <= 600; s++)
        mt_growth_add(&trend, s * 1000000000u, 4000000000u + s * 1000000u);
    mt_growth_of(&trend, AVAILABLE, &growth);
    assert_true(fabs(growth.bytes_per_s - 1e6) < 1);
    assert_true(fabs((double)growth.full_ns - 1e12) < 1e6);
    assert_true(growth.full_low_ns <= growth.full_ns);
    assert_int_equal(growth.leak, MT_LEAK_SLOW);
}

static void test_what_shrinks_is_never_full(void **state)
{
    struct mt_growth_bins trend = {0};
    struct mt_monitor_growth growth;
    (void)state;
    for (uint64_t s = 0; s <= 600; s++)
        mt_growth_add(&trend, s * 1000000000u, 4000000000u - s * 1000000u);
    mt_growth_of(&trend, AVAILABLE, &growth);
    assert_int_equal(growth.full_ns, MT_UNKNOWN);
    assert_int_equal(growth.leak, MT_LEAK_NONE);
}

static void test_clocks_that_jump_make_no_leak(void **state)
{
    struct mt_growth_bins trend = {0};
    struct mt_monitor_growth growth;
    uint64_t now_ns = 0;
    (void)state;
    seed = 5;
    for (unsigned i = 0; i < 100000; i++) {
        double kind = chance(0, 1);
        now_ns += kind < 0.01 ? (uint64_t)chance(0, 1e13) : 1000000000u;
        if (kind > 0.99)
            now_ns /= 2;
        if (mt_growth_add(&trend, now_ns, 4000000000u + (uint64_t)chance(0, 1e6))) {
            mt_growth_of(&trend, AVAILABLE, &growth);
            assert_int_equal(growth.leak, MT_LEAK_NONE);
            assert_true(trend.n <= MT_GROWTH_BINS);
        }
    }
}

/* ---- captured series ---- */

/* The growth of a program whose resident size was written down once a second, at its first alarm
 * or at the end. Returns when that was. */
static double growth_of_captured(const char *name, struct mt_monitor_growth *growth)
{
    char path[512];
    char line[512];
    double s = 0;
    struct mt_growth_bins trend = {0};
    snprintf(path, sizeof path, "%s/%s.series", SERIES_DIR, name);
    FILE *file = fopen(path, "re");
    if (!file)
        fail_msg("cannot open %s", path);
    *growth = (struct mt_monitor_growth){0};
    while (growth->leak == MT_LEAK_NONE && fgets(line, sizeof line, file)) {
        char *rest = line;
        for (char *end = line; *line != '#' && growth->leak == MT_LEAK_NONE; rest = end, s++) {
            uint64_t kib = strtoull(rest, &end, 10);
            if (end == rest)
                break;
            if (mt_growth_add(&trend, (uint64_t)(s * 1e9), kib << 10))
                mt_growth_of(&trend, AVAILABLE, growth);
        }
    }
    fclose(file);
    return s;
}

static void test_programs_that_leak_are_told_from_those_that_warm_up_and_cache(void **state)
{
    static const struct {
        const char *name;
        enum mt_leak leak;
        double within_s;
    } captured[] = {
        {"python-leak", MT_LEAK_SLOW, 630}, /* ten minutes, and the bin in which they end */
        {"python-fast", MT_LEAK_FAST, 360},     {"python-cache", MT_LEAK_NONE, 0},
        {"python-warm", MT_LEAK_NONE, 0},       {"node-collected", MT_LEAK_NONE, 0},
        {"llama-server-same", MT_LEAK_NONE, 0}, {"llama-server-caches", MT_LEAK_NONE, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof captured / sizeof *captured; i++) {
        struct mt_monitor_growth growth;
        double s = growth_of_captured(captured[i].name, &growth);
        print_message("# %-20s leak %d after %.0f s, %.1f KiB a second\n", captured[i].name,
                      growth.leak, s, growth.bytes_per_s / 1024);
        assert_int_equal(growth.leak, captured[i].leak);
        if (captured[i].leak)
            assert_true(s <= captured[i].within_s);
        else
            assert_true(s > 700); /* it was looked at to its end */
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_leak_is_found_within_ten_minutes),
        cmocka_unit_test(test_at_most_one_in_a_hundred_others_is_called_a_leak),
        cmocka_unit_test(test_a_fast_leak_is_found_after_five_minutes),
        cmocka_unit_test(test_the_forecast_is_what_is_available_by_the_slope),
        cmocka_unit_test(test_what_shrinks_is_never_full),
        cmocka_unit_test(test_clocks_that_jump_make_no_leak),
        cmocka_unit_test(test_programs_that_leak_are_told_from_those_that_warm_up_and_cache),
    };
    if (argc > 1)
        other_seed = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15u;
    return RUN_TESTS(tests);
}
