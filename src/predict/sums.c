/* SPDX-License-Identifier: MIT */
/* Arithmetic of sizes, which stops at what no device reaches. */
#include "predict/sums.h"

#include <string.h>

uint64_t mt_ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

uint64_t mt_mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product) || product > MT_FAR)
        return MT_FAR;
    return product;
}

uint64_t mt_add(uint64_t a, uint64_t b)
{
    return a < MT_FAR && b < MT_FAR - a ? a + b : MT_FAR;
}

uint64_t mt_scale(uint64_t bytes, double factor)
{
    double scaled = (double)bytes * factor;
    if (!(scaled > 0))
        return 0;
    return scaled < (double)MT_FAR ? (uint64_t)(scaled + 0.5) : MT_FAR;
}

double mt_gib(uint64_t bytes)
{
    return (double)bytes / (double)MT_GIB;
}

int mt_begins(const char *text, const char *start)
{
    return text && strncmp(text, start, strlen(start)) == 0;
}
