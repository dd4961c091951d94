/* SPDX-License-Identifier: MIT */
/* Which moment of a recording a tally is of, and which picture of each process shows it. */
#ifndef MT_TALLY_MOMENT_H
#define MT_TALLY_MOMENT_H

#include <memtally/tally.h>

#include "tally/image.h"

/* A process that lived at the moment. */
struct mt_process_choice {
    const struct mt_image *image;
    const struct mt_picture *picture; /* the one that shows it best; NULL where it has none */
    uint64_t resident_bytes;          /* by its timeline */
};

/* Chooses. *choices is owned by the caller (free()). Errors: MT_ENOTFOUND (nothing was measured),
 * MT_ENOMEM. */
int mt_moment_choose(const struct mt_recording *recording, const struct mt_moment *moment,
                     uint64_t *moment_ns, struct mt_process_choice **choices, size_t *n_choices,
                     struct mt_error *error);

/* The largest resident size of the tree: of a single process what the kernel says, of several the
 * largest sum of their timelines. MT_UNKNOWN where nothing says. Returns 0 or MT_ENOMEM. */
int mt_moment_peak_bytes(const struct mt_recording *recording, uint64_t *bytes);

/* What the machine said nearest to the moment. */
void mt_moment_machine(const struct mt_recording *recording, uint64_t moment_ns,
                       const struct mt_process_choice *choices, size_t n_choices,
                       struct mt_tally_machine *machine);

/* The tree's timeline: a point wherever a process's resident size is known anew. Owned by the
 * caller (free()); times are CLOCK_MONOTONIC. Returns 0 or MT_ENOMEM. */
int mt_moment_timeline(const struct mt_recording *recording, struct mt_point **points,
                       size_t *n_points);

#endif
