/* SPDX-License-Identifier: MIT */
/* What grew in a program that is recorded while somebody watches it: asked of its recording by a
 * thread of its own, because reading a long one takes seconds. */
#ifndef CLI_GROWN_H
#define CLI_GROWN_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct mt_recording_growth; /* <memtally/growth.h> */

#define CLI_GROWN_FAST_NS 300000000000u /* in which a fast leak shows, and a slow one */
#define CLI_GROWN_SLOW_NS 480000000000u

/* Starts as all zero. */
struct cli_grown {
    pthread_t thread;
    int is_asked;
    atomic_int is_answered;
    int is_owed; /* the files changed their form as they were read, or told nothing yet */
    uint64_t span_ns;
    char directory[PATH_MAX];
    struct mt_recording *recording;
    struct mt_recording_growth *growth; /* NULL: nothing can be said */
};

/* Asks what grew in the last `span_ns` in `pid` and its descendants. Nothing is asked where none of
 * them is recorded, or while a question is under way. */
void cli_grown_ask(struct cli_grown *grown, int pid, uint64_t span_ns);

/* The answer, once: until the next question or the end. NULL where there is none. With `waits` it
 * waits for the answer, and for a program that has ended reads again what told nothing before. */
const struct mt_recording_growth *cli_grown_take(struct cli_grown *grown, int waits);

void cli_grown_finish(struct cli_grown *grown);

#endif
