/* SPDX-License-Identifier: MIT */
/* The resident pages of a process at a moment of which there is no picture: those of a picture of
 * another moment, less what went back to the system in between, and with what came.
 *
 * What came is known by its size; how much of it was touched is not. The kernel's figure of the
 * moment, or what lies between the nearest two, says how much there is in all, and that is divided
 * among what came in proportion. */
#ifndef MT_TALLY_CARRY_H
#define MT_TALLY_CARRY_H

#include "tally/moment.h"
#include "tally/replay.h"

/* A flag of runs beside enum mt_run_flags: that the pages were there follows from events. */
#define MT_RUN_CARRIED ((uint64_t)1 << 62)

struct mt_carried {
    struct mt_picture picture;  /* its runs are owned, its texts are those of the choice's */
    const struct mt_maps *maps; /* in place of the picture's, where there is none */
    uint64_t bytes;             /* resident in all, where that is known; else MT_UNKNOWN */
    uint64_t first_bytes;       /* resident before the first event: the program and libraries */
    uint64_t small_bytes;       /* of blocks too small to be events, whose place is not known */
    uint64_t beyond_bytes;      /* resident, and of nothing known */
    int is_first_seen;          /* `first_bytes` was said when nothing was allocated yet */
    int is_carried;             /* it is not the picture as it was */
    int is_gone;                /* the kernel's last word is that it has no page any more */
};

/* Replays the choice's process up to the moment, and carries its picture there. `is_peak` says that
 * the moment is the resident peak, at which the kernel's high-water mark holds. Returns 0 or
 * MT_ENOMEM. */
int mt_carry(const struct mt_recording *recording, const struct mt_process_choice *choice,
             const struct mt_instant *at, int is_peak, struct mt_replay *replay,
             struct mt_carried *carried);

void mt_carried_finish(struct mt_carried *carried);

#endif
