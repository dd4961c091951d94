/* SPDX-License-Identifier: MIT */
/* Growth by Theil and Sen's slope of bins.
 *
 * A slope alone does not tell a leak from a program that warms up or loads a second model. A leak
 * goes on: each third of the time has to grow at half the whole's rate at least, the last one not
 * much less than the first, and no single bin may have most of the growth. */
#include "guard/growth.h"

#include <memtally/units.h>

#include "base/slope.h"

#include <math.h>
#include <string.h>

#define FAST_BINS       10u
#define FAST_RATIO      0.2   /* of the level, in FAST_BINS */
#define LARGEST_STEP    0.4   /* of the growth, from one bin to the next */
#define SLOW_PER_MINUTE 0.001 /* of the level, at the interval's lower end */
#define THIRDS_RATIO    0.5   /* of each third's slope to the whole's */
#define LAST_RATIO      0.6   /* of the last third's slope to the first's */
#define BINS_PER_MINUTE 2.0
#define NS_PER_S        1e9
#define LAST_FORECAST_S 1e10 /* later is never */
#define BIN_S           (MT_GROWTH_BIN_NS / NS_PER_S)

_Static_assert(MT_GROWTH_BINS <= MT_SLOPE_POINTS, "a slope is of all bins");

/* ---- bins ---- */

static void close_bin(struct mt_growth_bins *trend)
{
    if (trend->n == MT_GROWTH_BINS) {
        memmove(trend->bins, trend->bins + 1, (MT_GROWTH_BINS - 1) * sizeof *trend->bins);
        trend->n--;
    }
    trend->bins[trend->n++] = trend->now;
}

/* Bins from before the window say nothing about now. */
static void forget_old(struct mt_growth_bins *trend, uint64_t index)
{
    size_t n_old = 0;
    while (n_old < trend->n && trend->bins[n_old].index + MT_GROWTH_BINS < index)
        n_old++;
    trend->n -= n_old;
    memmove(trend->bins, trend->bins + n_old, trend->n * sizeof *trend->bins);
}

int mt_growth_add(struct mt_growth_bins *trend, uint64_t time_ns, uint64_t bytes)
{
    if (!trend->has_begun) {
        trend->has_begun = 1;
        trend->begin_ns = time_ns;
        trend->now = (struct mt_growth_bin){0, (double)bytes};
        return 0;
    }
    uint64_t index = time_ns < trend->begin_ns ? 0 : (time_ns - trend->begin_ns) / MT_GROWTH_BIN_NS;
    if (index <= trend->now.index) {
        trend->now.bytes = fmin(trend->now.bytes, (double)bytes);
        return 0;
    }
    close_bin(trend);
    forget_old(trend, index);
    trend->now = (struct mt_growth_bin){index, (double)bytes};
    return 1;
}

/* ---- slopes ---- */

/* Bytes for each bin. Of 2 bins at least. */
static struct mt_slope slope_of(const struct mt_growth_bin *bins, size_t n)
{
    double x[MT_GROWTH_BINS];
    double y[MT_GROWTH_BINS];
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)(bins[i].index - bins[0].index);
        y[i] = bins[i].bytes;
    }
    return mt_slope_of(x, y, n);
}

static double slope_of_third(const struct mt_growth_bin *bins, size_t n, uint64_t third)
{
    uint64_t first = bins[0].index;
    uint64_t span = bins[n - 1].index - first;
    size_t from = 0;
    size_t to = n;
    while (from < n && (bins[from].index - first) * 3 < third * span)
        from++;
    while (to > from && (bins[to - 1].index - first) * 3 > (third + 1) * span)
        to--;
    return to < from + 2 ? 0 : slope_of(bins + from, to - from).middle;
}

static double largest_step(const struct mt_growth_bin *bins, size_t n)
{
    double largest = 0;
    for (size_t i = 1; i < n; i++)
        largest = fmax(largest, bins[i].bytes - bins[i - 1].bytes);
    return largest;
}

/* Whether growth goes on through all of the time. */
static int goes_on(const struct mt_growth_bin *bins, size_t n, double slope)
{
    double thirds[3];
    for (uint64_t third = 0; third < 3; third++) {
        thirds[third] = slope_of_third(bins, n, third);
        if (thirds[third] < slope * THIRDS_RATIO)
            return 0;
    }
    return thirds[2] >= thirds[0] * LAST_RATIO &&
           largest_step(bins, n) < LARGEST_STEP * (bins[n - 1].bytes - bins[0].bytes);
}

/* ---- alarms ---- */

static int is_slow(const struct mt_growth_bins *trend, const struct mt_slope *slope)
{
    const struct mt_growth_bin *bins = trend->bins;
    if (bins[trend->n - 1].index - bins[0].index < MT_GROWTH_BINS - 1)
        return 0;
    double least = SLOW_PER_MINUTE / BINS_PER_MINUTE * bins[0].bytes;
    return slope->low > 0 && slope->low >= least && goes_on(bins, trend->n, slope->middle);
}

static int is_fast(const struct mt_growth_bins *trend)
{
    size_t from = 0;
    uint64_t last = trend->bins[trend->n - 1].index;
    while (trend->bins[from].index + FAST_BINS <= last)
        from++;
    const struct mt_growth_bin *bins = trend->bins + from;
    size_t n = trend->n - from;
    if (n < FAST_BINS / 2 || last - bins[0].index < FAST_BINS - 1)
        return 0;
    double growth = bins[n - 1].bytes - bins[0].bytes;
    return growth > FAST_RATIO * bins[0].bytes && goes_on(bins, n, slope_of(bins, n).middle);
}

static uint64_t lasts_ns(uint64_t available_bytes, double bytes_per_s)
{
    double seconds = (double)available_bytes / bytes_per_s;
    return bytes_per_s > 0 && seconds < LAST_FORECAST_S ? (uint64_t)(seconds * NS_PER_S)
                                                        : MT_UNKNOWN;
}

void mt_growth_of(const struct mt_growth_bins *trend, uint64_t available_bytes,
                  struct mt_monitor_growth *growth)
{
    *growth = (struct mt_monitor_growth){.full_ns = MT_UNKNOWN, .full_low_ns = MT_UNKNOWN};
    if (trend->n < MT_GROWTH_BINS / 4)
        return;
    struct mt_slope slope = slope_of(trend->bins, trend->n);
    growth->bytes_per_s = slope.middle / BIN_S;
    growth->low_bytes_per_s = slope.low / BIN_S;
    growth->high_bytes_per_s = slope.high / BIN_S;
    growth->leak = is_fast(trend)           ? MT_LEAK_FAST
                   : is_slow(trend, &slope) ? MT_LEAK_SLOW
                                            : MT_LEAK_NONE;
    if (slope.low > 0) {
        growth->full_ns = lasts_ns(available_bytes, growth->bytes_per_s);
        growth->full_low_ns = lasts_ns(available_bytes, growth->high_bytes_per_s);
    }
}
