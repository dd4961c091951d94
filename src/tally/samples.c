/* SPDX-License-Identifier: MIT */
/* What a sample of small blocks stands for. */
#include <math.h>

#include "tally/replay.h"

/* A block of s bytes is sampled with probability 1 - exp(-s / interval), so that it stands for the
 * inverse of that many. */
uint64_t mt_sample_bytes(uint64_t size, uint64_t interval_bytes)
{
    if (!size || !interval_bytes)
        return size;
    double weight = 1 / -expm1(-(double)size / (double)interval_bytes);
    return weight < 1e9 ? (uint64_t)((double)size * weight) : 0;
}

uint64_t mt_replay_small_bytes(const struct mt_replay *replay)
{
    uint64_t came = replay->small_alloc_bytes + replay->sampled_bytes;
    uint64_t went = replay->small_free_bytes + replay->sampled_bytes_then;
    return came > went ? came - went : 0;
}
