/* SPDX-License-Identifier: MIT */
/* What processes of a tree share since they were forked from each other. */
#ifndef MT_TALLY_FORKS_H
#define MT_TALLY_FORKS_H

#include "tally/carry.h"
#include "tally/moment.h"

struct mt_fork {
    size_t leader; /* the family's first process, whose memory is counted in full */
    /* What only a leader has: */
    uint64_t all_from_ns; /* all of the family that live at the moment did from here */
    uint64_t all_until_ns;
    uint64_t shares_bytes; /* the kernel's shares of what is shared, added up */
    uint64_t most_shared_bytes;
    uint64_t offered_bytes; /* what those that were counted may share with the next */
    size_t n_members;
    int is_pictured; /* each of the family has a picture of the moment */
    int is_single;   /* no other of the family lives at the moment */
};

struct mt_forks {
    const struct mt_recording *recording;
    const struct mt_moment_found *found;
    struct mt_fork *forks; /* of all choices */
    size_t *leaders;       /* of each image that is a root: 1 + the choice that leads its family */
};

/* Pictures of a tree's processes that lie farther apart are not of one moment. */
#define MT_PICTURES_APART_NS 20000000u

/* Finds the root of each image, and what each picture says of shared memory. */
void mt_forks_find(struct mt_recording *recording);

/* The picture of a process nearest to `ns` in which it shared memory; NULL where none shows any. */
const struct mt_picture *mt_forks_picture(const struct mt_image *image, uint64_t ns);

/* Returns 0 or MT_ENOMEM. */
int mt_forks_init(struct mt_forks *forks, const struct mt_recording *recording,
                  const struct mt_moment_found *found);
void mt_forks_finish(struct mt_forks *forks);

/* How much of the `anonymous_bytes` of choice `i` is counted for another process. Choices come in
 * their order. */
uint64_t mt_forks_shared(struct mt_forks *forks, size_t i, const struct mt_carried *carried,
                         uint64_t anonymous_bytes);

#endif
