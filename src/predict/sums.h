/* SPDX-License-Identifier: MIT */
/* Arithmetic of sizes that cannot overflow. */
#ifndef MT_PREDICT_SUMS_H
#define MT_PREDICT_SUMS_H

#include <stdint.h>

#define MT_MIB (UINT64_C(1) << 20)
#define MT_GIB (UINT64_C(1) << 30)

/* a / b rounded up; b is not 0. */
uint64_t mt_ceil_div(uint64_t a, uint64_t b);
/* What no device reaches. Products and sums stop there, so that a few of them still add up. */
#define MT_FAR (UINT64_C(1) << 60)
uint64_t mt_mul(uint64_t a, uint64_t b);
uint64_t mt_add(uint64_t a, uint64_t b);
/* bytes * factor, up to MT_FAR. */
uint64_t mt_scale(uint64_t bytes, double factor);
/* A size in GiB, for formulas. */
double mt_gib(uint64_t bytes);
/* Whether a text, NULL too, begins with `start`. */
int mt_begins(const char *text, const char *start);

#endif
