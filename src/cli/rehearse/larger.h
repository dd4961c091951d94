/* SPDX-License-Identifier: MIT */
/* How large a device a CUDA program would need. */
#ifndef CLI_REHEARSE_LARGER_H
#define CLI_REHEARSE_LARGER_H

#include "cli/rehearse/told.h"

/* Rehearses a program that ran out once more on the same GPUs with many times their memory, and
 * tells as a change how much of it it took. Engines that take a share of what there is are left
 * alone. What keeps it from finding out is a note. */
void rehearse_find_larger(const struct rehearse_job *job, struct rehearse_told *told);

/* The share of a device that an engine was told to take: "--gpu-memory-utilization 0.8", with an
 * equals sign, or among the settings of our own small program. vLLM's default where it was not. */
double rehearse_share_of(char *const *argv);

/* What the fullest device holds at least: all of it, or, with a cache of room for so many of the
 * longest `requests`, a cache for one of them. */
uint64_t rehearse_least_bytes(const struct mt_tally *tally, double requests);

#endif
