/* SPDX-License-Identifier: MIT */
/* With which change a CUDA program that ran out would run, each one rehearsed. */
#ifndef ADVISE_CUDA_SUGGEST_H
#define ADVISE_CUDA_SUGGEST_H

#include "advise/cuda_shortage.h"
#include "answer.h"

/* How memory did not suffice in a rehearsal that ended for want of it (shortage.c). */
void mt_advise_shortage_of(const struct mt_drive_result *result,
                           struct mt_advise_shortage *shortage);

/* What an engine's own words say of that; leaves *shortage alone where it said nothing. */
void mt_advise_shortage_from_words(const char *said, struct mt_advise_shortage *shortage);

/* Looks for changes of the settings of an engine that is known, of PyTorch's allocator, or else
 * for a device that would do. What keeps it from looking is a note. */
void mt_advise_cuda_suggest(const struct mt_drive_job *job, struct mt_advise_answer *answer);

#endif
