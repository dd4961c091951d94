/* SPDX-License-Identifier: MIT */
/* With which change a CUDA program that ran out would run, each one rehearsed. */
#ifndef CLI_REHEARSE_CUDA_SUGGEST_H
#define CLI_REHEARSE_CUDA_SUGGEST_H

#include "cli/rehearse/cuda_search.h"
#include "cli/rehearse/told.h"

/* How memory did not suffice in a rehearsal that ended for want of it (shortage.c). */
void rehearse_shortage_of(const struct rehearse_result *result, struct rehearse_shortage *shortage);

/* What an engine's own words say of that; leaves *shortage alone where it said nothing. */
void rehearse_shortage_said(const char *said, struct rehearse_shortage *shortage);

/* Looks for changes of the settings of an engine that is known, of PyTorch's allocator, or else
 * for a device that would do. What keeps it from looking is a note. */
void rehearse_cuda_suggest(const struct rehearse_job *job, struct rehearse_told *told);

#endif
