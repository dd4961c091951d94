/* SPDX-License-Identifier: MIT */
/* Which step of a guard is due. Pure: its caller has the clock and does the step.
 *
 * Steps begin at `act_bytes` and go one by one, each with the time that it has. A program that
 * would soon be at its limit has no such time: what may help is done at once, up to the step that
 * stops it. Below `calm_bytes` the steps begin anew. */
#ifndef MT_GUARD_LADDER_H
#define MT_GUARD_LADDER_H

#include <memtally/guard.h>

#define MT_LADDER_THAW (1u << MT_N_GUARD_STEPS)

struct mt_ladder {
    uint64_t limit_bytes;
    uint64_t act_bytes;
    uint64_t calm_bytes;
    uint64_t time_ns[MT_N_GUARD_STEPS]; /* until the next one */
    unsigned steps;                     /* a bit for each one that there is */
    int is_held;                        /* the kernel stops it at the limit */

    int is_acting;
    int is_frozen;
    unsigned next;
    uint64_t since_ns; /* the last step */
    uint64_t last_bytes;
};

/* Says what is due: a bit for each step, to be taken in their order, and MT_LADDER_THAW after them.
 */
unsigned mt_ladder_look(struct mt_ladder *ladder, uint64_t now_ns, uint64_t used_bytes);

#endif
