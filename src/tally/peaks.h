/* SPDX-License-Identifier: MIT */
/* When a tree held most, by the events of its processes: of the heap, of each category, and of
 * resident memory as far as looks, samples and pictures tell. */
#ifndef MT_TALLY_PEAKS_H
#define MT_TALLY_PEAKS_H

#include <memtally/category.h>
#include <stddef.h>
#include <stdint.h>

struct mt_recording;

/* A point of time. Two clocks agree to some nanoseconds only: where an event of `image` made it,
 * `ticks` is that event's; 0 where `ns` is all there is. ns 0: there is no such point. */
struct mt_instant {
    uint64_t ns;
    uint64_t ticks;
    size_t image;
    uint64_t bytes;
};

/* Time through which the resident size was about the same: from the point at which it was known to
 * be that to the next at which it was known to be another, or was seen to fall. */
struct mt_stretch {
    uint64_t ns;
    uint64_t first_bytes;
    struct mt_instant resident; /* where it was largest */
    struct mt_instant heap;     /* where most of the heap was in use */
};

struct mt_peaks {
    struct mt_instant heap;
    struct mt_instant of[MT_CATEGORY_END];
    struct mt_stretch *stretches; /* by time; those that are far below the peak are left out */
    size_t n_stretches;
    uint64_t most_bytes; /* resident in all, had each process touched what came to it at once */
};

/* How far two sizes are apart and still the same: what a picture costs is not paid for less. */
#define MT_ABOUT_THE_SAME(bytes) ((bytes) / 64 + ((uint64_t)64 << 10))

/* How far below the resident peak memory still stands as high as there: within the 0.5 % to which a
 * peak is caught. The recorder, while it may look often, takes pictures of steps from 1/320 on. */
#define MT_AS_HIGH(bytes) ((bytes) / 320)

/* Finds them in one pass over the events of all processes, merged by time; notes in each picture
 * what the tree held then. Memory is that of what lives at a time. Returns 0, MT_ENOMEM or MT_EIO.
 */
int mt_peaks_find(struct mt_recording *recording);

void mt_peaks_finish(struct mt_peaks *peaks);

#endif
