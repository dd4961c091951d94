/* SPDX-License-Identifier: MIT */
#include "base/slope.h"

#include <math.h>
#include <stdlib.h>

#define QUANTILE_99 2.5758

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static double middle_of(const double *sorted, size_t n)
{
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double mt_median(double *values, size_t n)
{
    if (n == 0)
        return 0;
    qsort(values, n, sizeof *values, by_size);
    return middle_of(values, n);
}

double mt_kendall_variance(size_t n)
{
    double points = (double)n;
    return points * (points - 1) * (2 * points + 5) / 18;
}

struct mt_slope mt_slope_of(const double *x, const double *y, size_t n)
{
    double slopes[MT_SLOPE_POINTS * (MT_SLOPE_POINTS - 1) / 2];
    size_t n_slopes = 0;
    n = n < MT_SLOPE_POINTS ? n : MT_SLOPE_POINTS;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            if (x[j] > x[i])
                slopes[n_slopes++] = (y[j] - y[i]) / (x[j] - x[i]);
    if (n_slopes == 0)
        return (struct mt_slope){0};
    double middle = mt_median(slopes, n_slopes);
    double half = QUANTILE_99 * sqrt(mt_kendall_variance(n)) / 2;
    double at = floor((double)n_slopes / 2 - half);
    size_t from = at > 0 ? (size_t)at : 0;
    return (struct mt_slope){middle, slopes[from], slopes[n_slopes - 1 - from]};
}
