/* SPDX-License-Identifier: MIT */
/* How large a device a CUDA program would need. */
#ifndef ADVISE_LARGER_H
#define ADVISE_LARGER_H

#include "answer.h"

/* A program where nothing limits it. */
struct mt_advise_whole {
    int is_known;         /* it ran, and says how much would do */
    uint64_t least_bytes; /* that a device must have */
    uint64_t whole_bytes; /* of the fullest device */
    uint64_t fixed_bytes; /* of these, weights, contexts and the like */
    int is_share;         /* it takes a share of what there is */
    char why[420];        /* it did not run there, or "" */
};

/* Rehearses a program that ran out once more on the same GPUs with many times their memory. Returns
 * 0 also where it does not run there. Errors: those of mt_drive_run(). */
int mt_advise_look_at_whole(const struct mt_drive_job *job, struct mt_advise_whole *whole,
                            struct mt_error *error);

/* Tells the device that would do as a change, or that none is known. */
void mt_advise_answer_device_size(const struct mt_drive_job *job,
                                  const struct mt_advise_whole *whole,
                                  struct mt_advise_answer *answer);

/* The share of a device that an engine was told to take: "--gpu-memory-utilization 0.8", with an
 * equals sign, or among the settings of our own small program. vLLM's default where it was not. */
double mt_advise_share_of(char *const *argv);

/* Whether the engine's cache is a share of the device. */
int mt_advise_takes_a_share(char *const *argv);

/* What the fullest device holds at least: all of it, or, with a cache of room for so many of the
 * longest `requests`, a cache for one of them. */
uint64_t mt_advise_least_bytes(const struct mt_tally *tally, double requests);

#endif
