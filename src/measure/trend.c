/* SPDX-License-Identifier: MIT */
/* What a series of sizes looks like. Knows numbers only, not where they came from. */
#include <memtally/track.h>

#include <math.h>

#include "base/slope.h"

#define BINS         MT_SLOPE_POINTS
#define NOISE_BYTES  (1u << 20)
#define NOISE_RATIO  0.01
#define RISK         0.01 /* of calling a series without a trend one that grows */
#define FEWEST_FALLS 3

/* The lowest point of each stretch of a series. */
struct curve {
    size_t n;
    double seconds[BINS];
    double bytes[BINS];
};

const char *mt_trend_pattern_name(enum mt_trend_pattern pattern)
{
    switch (pattern) {
#define CASE(NAME, name)                                                                           \
    case MT_TREND_##NAME:                                                                          \
        return name;
        MT_TREND_LIST(CASE)
#undef CASE
    }
    return "?";
}

static double bytes_of(const struct mt_trend_point *point)
{
    return (double)point->held_bytes;
}

/* Falls of the series that are more than noise: from the highest since the last low one. */
static size_t count_falls(const struct mt_trend_point *points, size_t n, double least)
{
    size_t falls = 0;
    double high = bytes_of(points), low = high;
    int goes_down = 0;
    for (size_t i = 1; i < n; i++) {
        double now = bytes_of(&points[i]);
        if (goes_down && now - low >= least) {
            goes_down = 0;
            high = now;
        } else if (!goes_down && high - now >= least) {
            goes_down = 1;
            falls++;
            low = now;
        }
        high = fmax(high, now);
        low = fmin(low, now);
    }
    return falls;
}

/* A stretch with no fewer points than a tooth has shows its lowest; at least 8 stretches. */
static struct curve lowest_of(const struct mt_trend_point *points, size_t n, size_t bins)
{
    struct curve curve = {.n = bins < n ? bins : n};
    for (size_t bin = 0; bin < curve.n; bin++) {
        size_t from = n * bin / curve.n, to = n * (bin + 1) / curve.n, lowest = from;
        for (size_t i = from; i < to; i++)
            if (points[i].held_bytes < points[lowest].held_bytes)
                lowest = i;
        curve.seconds[bin] = (double)(points[lowest].time_ns - points[0].time_ns) / 1e9;
        curve.bytes[bin] = bytes_of(&points[lowest]);
    }
    return curve;
}

static struct curve part_of(const struct curve *curve, size_t from)
{
    struct curve part = {.n = curve->n - from};
    for (size_t i = 0; i < part.n; i++) {
        part.seconds[i] = curve->seconds[from + i];
        part.bytes[i] = curve->bytes[from + i];
    }
    return part;
}

static double slope_of(const struct curve *curve)
{
    return mt_slope_of(curve->seconds, curve->bytes, curve->n).middle;
}

static double growth_of(const struct curve *curve)
{
    return slope_of(curve) * (curve->seconds[curve->n - 1] - curve->seconds[0]);
}

/* Mann and Kendall: how likely so many pairs would grow if nothing did. 1 where more fall. */
static double chance_of_growth(const struct curve *curve)
{
    double rises = 0;
    for (size_t i = 0; i < curve->n; i++)
        for (size_t j = i + 1; j < curve->n; j++)
            rises += (curve->bytes[j] > curve->bytes[i]) - (curve->bytes[j] < curve->bytes[i]);
    if (rises <= 0)
        return 1;
    return erfc((rises - 1) / sqrt(mt_kendall_variance(curve->n)) / sqrt(2));
}

/* The share of the spread that a line of that slope explains. */
static double straightness(const struct curve *curve, double slope)
{
    double rests[BINS], mean = 0, spread = 0, left = 0;
    for (size_t i = 0; i < curve->n; i++) {
        rests[i] = curve->bytes[i] - slope * curve->seconds[i];
        mean += curve->bytes[i] / (double)curve->n;
    }
    double begin = mt_median(rests, curve->n);
    for (size_t i = 0; i < curve->n; i++) {
        double rest = curve->bytes[i] - begin - slope * curve->seconds[i];
        left += rest * rest;
        spread += (curve->bytes[i] - mean) * (curve->bytes[i] - mean);
    }
    return spread > 0 ? fmax(0, 1 - left / spread) : 0;
}

/* Between the highest and the lowest of curve[from..to). */
static double range_of(const struct curve *curve, size_t from, size_t to)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = from; i < to; i++) {
        low = fmin(low, curve->bytes[i]);
        high = fmax(high, curve->bytes[i]);
    }
    return to > from ? high - low : 0;
}

static double share_left(double part, double whole)
{
    return whole > 0 ? fmin(1, fmax(0, 1 - part / whole)) : 1;
}

/* One jump, with a stay of some points before and after it. */
static int is_step(const struct curve *curve, double noise, struct mt_trend *trend)
{
    size_t at = 1;
    for (size_t i = 2; i < curve->n; i++)
        if (fabs(curve->bytes[i] - curve->bytes[i - 1]) >
            fabs(curve->bytes[at] - curve->bytes[at - 1]))
            at = i;
    double jump = fabs(curve->bytes[at] - curve->bytes[at - 1]);
    double around = fmax(range_of(curve, 0, at), range_of(curve, at, curve->n));
    if (at < 2 || curve->n - at < 2 || jump < noise || around > fmax(noise, jump / 10))
        return 0;
    trend->pattern = MT_TREND_STEP;
    trend->confidence_ratio = share_left(around, jump);
    return 1;
}

/* Grows first, and has stayed for the last two fifths. */
static int is_warm_up(const struct curve *curve, double noise, struct mt_trend *trend)
{
    size_t end = curve->n * 3 / 5;
    double whole = range_of(curve, 0, curve->n), tail = range_of(curve, end, curve->n);
    if (curve->bytes[curve->n - 1] - curve->bytes[0] < noise || tail > fmax(noise, whole / 20))
        return 0;
    trend->pattern = MT_TREND_WARM_UP;
    trend->confidence_ratio = share_left(tail, whole);
    return 1;
}

/* What grew at the beginning may be a warm-up: what counts is the later half. */
static int is_leak(const struct curve *curve, double noise, struct mt_trend *trend)
{
    struct curve later = part_of(curve, curve->n >= 2 * MT_TREND_POINTS ? curve->n / 2 : 0);
    double chance = fmax(chance_of_growth(&later), chance_of_growth(curve));
    if (chance > RISK || growth_of(curve) < noise || growth_of(&later) < noise / 4)
        return 0;
    trend->pattern = MT_TREND_LEAK;
    trend->confidence_ratio = fmin(1 - chance, straightness(&later, slope_of(&later)));
    return 1;
}

static double noise_of(const struct mt_trend_point *points, size_t n)
{
    struct curve curve = lowest_of(points, n, BINS);
    return fmax(NOISE_BYTES, NOISE_RATIO * mt_median(curve.bytes, curve.n));
}

static void judge(const struct mt_trend_point *points, size_t n, struct mt_trend *trend)
{
    double noise = noise_of(points, n), range = (double)(trend->high_bytes - trend->low_bytes);
    if (range <= noise) {
        trend->pattern = MT_TREND_STEADY;
        trend->confidence_ratio = 1 - range / noise / 2;
        return;
    }
    size_t falls = count_falls(points, n, fmax(noise, range / 8));
    /* Two falls within each stretch, so that each has a lowest point of its own. */
    size_t bins = falls >= FEWEST_FALLS ? falls / 2 + 1 : BINS;
    struct curve curve = lowest_of(points, n,
                                   bins < MT_TREND_POINTS ? MT_TREND_POINTS
                                   : bins > BINS          ? BINS
                                                          : bins);
    trend->growth_bytes = (int64_t)growth_of(&curve);
    trend->bytes_per_second = slope_of(&curve);
    if (falls < FEWEST_FALLS && (is_step(&curve, noise, trend) || is_warm_up(&curve, noise, trend)))
        return;
    if (is_leak(&curve, noise, trend) || falls < FEWEST_FALLS)
        return;
    trend->pattern = MT_TREND_SAWTOOTH;
    trend->confidence_ratio = share_left(fabs((double)trend->growth_bytes), range);
}

static struct mt_trend judge_held(const struct mt_trend_point *points, size_t n)
{
    struct mt_trend trend = {.pattern = n < MT_TREND_POINTS ? MT_TREND_SHORT : MT_TREND_UNCLEAR};
    if (n == 0)
        return trend;
    trend.low_bytes = trend.high_bytes = points[0].held_bytes;
    for (size_t i = 1; i < n; i++) {
        if (trend.low_bytes > points[i].held_bytes)
            trend.low_bytes = points[i].held_bytes;
        if (trend.high_bytes < points[i].held_bytes)
            trend.high_bytes = points[i].held_bytes;
    }
    if (n >= MT_TREND_POINTS)
        judge(points, n, &trend);
    return trend;
}

/* A part of a series, thinned to what judging looks at: what is used, or what is not. */
static enum mt_trend_pattern judge_part(const struct mt_trend_point *points, size_t n, int used)
{
    struct mt_trend_point part[4 * BINS];
    size_t kept = n < sizeof part / sizeof *part ? n : sizeof part / sizeof *part;
    for (size_t i = 0; i < kept; i++) {
        part[i] = points[n * i / kept];
        if (part[i].used_bytes > part[i].held_bytes)
            return MT_TREND_UNCLEAR;
        part[i].held_bytes = used ? part[i].used_bytes : part[i].held_bytes - part[i].used_bytes;
    }
    return judge_held(part, kept).pattern;
}

void mt_trend_judge(const struct mt_trend_point *points, size_t n, struct mt_trend *trend)
{
    *trend = judge_held(points, n);
    if (trend->pattern == MT_TREND_LEAK && judge_part(points, n, 0) == MT_TREND_LEAK &&
        judge_part(points, n, 1) != MT_TREND_LEAK)
        trend->pattern = MT_TREND_FRAGMENTATION;
}
