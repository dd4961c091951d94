/* SPDX-License-Identifier: MIT */
/* Peaks within stretches of a timeline. */
#include "cli/profile/timeline.h"
#include <memtally/recording.h>
#include <memtally/units.h>

uint64_t profile_peak_within(const struct mt_timeline_point *points, size_t n, uint64_t start_ns,
                             uint64_t end_ns)
{
    uint64_t before = MT_UNKNOWN;
    uint64_t peak = MT_UNKNOWN;
    for (size_t i = 0; i < n && points[i].time_ns <= end_ns; i++) {
        uint64_t bytes = points[i].resident_bytes;
        if (points[i].time_ns < start_ns)
            before = bytes;
        else if (bytes != MT_UNKNOWN && (peak == MT_UNKNOWN || bytes > peak))
            peak = bytes;
    }
    return peak == MT_UNKNOWN ? before : peak;
}
