/* SPDX-License-Identifier: MIT */
/* What was resident at most within a stretch of a timeline. */
#ifndef CLI_PROFILE_TIMELINE_H
#define CLI_PROFILE_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

struct mt_timeline_point; /* <memtally/recording.h> */

/* The largest of the points from `start_ns` to `end_ns`, both included. Where none is in it, the
 * stretch is shorter than the points are apart, and what the last point before it says still held;
 * MT_UNKNOWN where there is none. The points are oldest first. */
uint64_t profile_peak_within(const struct mt_timeline_point *points, size_t n, uint64_t start_ns,
                             uint64_t end_ns);

#endif
