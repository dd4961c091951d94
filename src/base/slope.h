/* SPDX-License-Identifier: MIT */
/* Theil and Sen's slope: the median of the slopes between all pairs of points, which a few odd
 * points do not move. Its interval is Sen's, from the variance of Kendall's statistic. */
#ifndef MT_BASE_SLOPE_H
#define MT_BASE_SLOPE_H

#include <stddef.h>

#define MT_SLOPE_POINTS 48u /* at most: the slopes are many */

struct mt_slope {
    double middle;
    double low; /* its interval of 99 % */
    double high;
};

/* The slope of points whose `x` do not fall. Pairs of one x have no slope; without one all is 0. */
struct mt_slope mt_slope_of(const double *x, const double *y, size_t n);

/* The median; sorts `values`. 0 where there are none. */
double mt_median(double *values, size_t n);

/* The variance of Kendall's statistic of n points in no order. */
double mt_kendall_variance(size_t n);

#endif
