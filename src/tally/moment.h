/* SPDX-License-Identifier: MIT */
/* Which moment of a recording a tally is of, and which picture of each process shows it. */
#ifndef MT_TALLY_MOMENT_H
#define MT_TALLY_MOMENT_H

#include "tally/image.h"

struct mt_moment; /* both of <memtally/tally.h> */
struct mt_tally_machine;

/* A change of one process's resident size. */
struct mt_step {
    uint64_t ns;
    size_t image;
    uint64_t resident_bytes;
};

/* A process that lived at the moment. */
struct mt_process_choice {
    const struct mt_image *image;
    const struct mt_picture *picture; /* the one to begin from; NULL where there is none */
    const struct mt_image *pictured;  /* whom it shows: the image, or one that it was forked from */
    uint64_t ticks;                   /* the moment, in the image's clock or its parent's */
    uint64_t least_bytes; /* at the peak of one that lives alone: the most that was seen of it */
};

/* Shared by all who show a moment, so that they show the same. */
struct mt_moment_found {
    struct mt_instant at;
    struct mt_process_choice *choices; /* in the order of the images; owned */
    size_t n_choices;
};

/* Chooses (choose.c). found->choices is owned by the caller (free()). Errors: MT_EARG (past the
 * end), MT_ENOTFOUND (nothing was recorded, or nothing of that category), MT_ENOMEM. */
int mt_moment_choose(const struct mt_recording *recording, const struct mt_moment *moment,
                     struct mt_moment_found *found, struct mt_error *error);

/* Where a moment lies; ns 0 where the recording has none such (choose.c). */
struct mt_instant mt_moment_instant(const struct mt_recording *recording,
                                    const struct mt_moment *moment);

/* The largest resident size of the tree: of a single process what the kernel says, of several the
 * largest sum of their timelines. MT_UNKNOWN where nothing says. Returns 0 or MT_ENOMEM. */
int mt_moment_peak_bytes(const struct mt_recording *recording, uint64_t *bytes);

/* What the machine said nearest to the moment. */
void mt_moment_machine(const struct mt_recording *recording, const struct mt_moment_found *found,
                       struct mt_tally_machine *machine);

/* All steps of all processes by time; a process ends with a step to 0. *steps is owned by the
 * caller (free()). Returns 0 or MT_ENOMEM. */
int mt_moment_steps(const struct mt_recording *recording, struct mt_step **steps, size_t *n);

/* The tree's timeline: a point wherever a process's resident size is known anew. Owned by the
 * caller (free()); times are CLOCK_MONOTONIC. Returns 0 or MT_ENOMEM. */
int mt_moment_timeline(const struct mt_recording *recording, struct mt_point **points,
                       size_t *n_points);

#endif
