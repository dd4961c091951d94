/* SPDX-License-Identifier: MIT */
/* Whether what is allocated grows, and whether that is a leak. Pure: its caller has the clock.
 *
 * Readings are put into bins of half a minute, of which the lowest reading counts: what a program
 * allocates and frees again within a bin, or a collector once in a while, is no growth. */
#ifndef MT_GUARD_GROWTH_H
#define MT_GUARD_GROWTH_H

#include <memtally/monitor.h>

#define MT_GROWTH_BINS   16u
#define MT_GROWTH_BIN_NS 30000000000u

/* A bin that is full; bins without a reading are left out. */
struct mt_growth_bin {
    uint64_t index; /* of MT_GROWTH_BIN_NS since the first reading */
    double bytes;   /* the lowest reading in it */
};

struct mt_growth_bins {
    int has_begun;
    uint64_t begin_ns;
    struct mt_growth_bin now;
    struct mt_growth_bin bins[MT_GROWTH_BINS]; /* the newest, oldest first */
    size_t n;
};

/* Adds a reading. A clock that goes backwards stands still here. Returns 1 where a bin became full,
 * so that the growth may be another one. */
int mt_growth_add(struct mt_growth_bins *trend, uint64_t time_ns, uint64_t bytes);

/* Says how the bins grow, and until when `available_bytes` last. */
void mt_growth_of(const struct mt_growth_bins *trend, uint64_t available_bytes,
                  struct mt_monitor_growth *growth);

#endif
