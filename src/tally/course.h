/* SPDX-License-Identifier: MIT */
/* The course of the resident sizes of a tree: known at points, which looks, samples and pictures
 * are. In between a process grows where memory comes and falls where memory is seen to go; one
 * without the recorder grows evenly. What forks share is counted once, as far as pictures say. */
#ifndef MT_TALLY_COURSE_H
#define MT_TALLY_COURSE_H

#include "tally/image.h"

struct mt_step;

/* The last size of a process that is known, and which of the steps is its next. */
struct mt_course_place {
    uint64_t ns;
    uint64_t bytes;
    uint64_t untouched; /* that came and was not yet seen to be resident */
    size_t alive_at;    /* 1 + where it stands among those alive; 0: not there */
    size_t next;        /* past the last step where there is none */
    int is_falling;     /* memory went, and nothing came since */
};

struct mt_course {
    const struct mt_recording *recording;
    struct mt_step *steps; /* by time */
    size_t n_steps;
    size_t at;                      /* the step that comes next */
    size_t *next;                   /* of each step the next of the same process */
    struct mt_course_place *places; /* of each image */
    size_t *alive;                  /* images that have begun and not ended */
    size_t n_alive;
    uint64_t alive_bytes; /* the last sizes of those alive, added up */
    size_t n_begun;
};

/* Returns 0 or MT_ENOMEM. */
int mt_course_init(struct mt_course *course, const struct mt_recording *recording);
void mt_course_finish(struct mt_course *course);

/* The part of what a fork has at `ns` that is counted for the process that it was forked from. */
uint64_t mt_course_shared_bytes(const struct mt_recording *recording, size_t image, uint64_t ns);

/* When the next size is known; UINT64_MAX after the last. */
uint64_t mt_course_next_ns(const struct mt_course *course);
void mt_course_step(struct mt_course *course);

/* `more` came to a process: it is taken for touched at once, as far as its next size bears that
 * out. Returns by how much the process is larger. */
uint64_t mt_course_rise(struct mt_course *course, size_t image, uint64_t ns, uint64_t more);

/* A process has only so much from `ns` on. */
void mt_course_fall(struct mt_course *course, size_t image, uint64_t ns, uint64_t bytes);

/* The size of a process, and of all, at `ns`, which does not go back. */
uint64_t mt_course_own_bytes(const struct mt_course *course, size_t image, uint64_t ns);
uint64_t mt_course_bytes(struct mt_course *course, uint64_t ns);

/* The most that all may have had together after the last step: each had by then touched what had
 * come to it, as far as its next size bears that out. */
uint64_t mt_course_most_bytes(const struct mt_course *course);

#endif
