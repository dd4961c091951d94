/* SPDX-License-Identifier: MIT */
/* What a CUDA program's own words tell of how it ended. */
#ifndef DRIVE_WORDS_H
#define DRIVE_WORDS_H

#include "job.h"

/* Reads the end of what the program wrote, on both streams, into result->said. */
void mt_drive_read_refusal(struct mt_drive_result *result);

/* Says in result->why why no process made a CUDA context. Returns 0 where nothing is known of that.
 */
int mt_drive_explain_no_cuda(const struct mt_drive_job *job, struct mt_drive_result *result);

/* Says in result->why which library brings a runtime of NVIDIA's, where the program failed by that:
 * nothing can be said of its memory. Returns 0 where it did not. */
int mt_drive_explain_private(struct mt_drive_result *result);

/* An engine that found by itself that its memory does not suffice ends without an allocation that
 * was refused. Says so in result->why, with what to change; returns 0 where it is none of these. */
int mt_drive_explain_engine(struct mt_drive_result *result);

/* The same where an allocation was refused on the way: of sentences with which an engine ends
 * before it takes what it lacks. */
int mt_drive_explain_foresight(struct mt_drive_result *result);

/* Adds to that how much the engine wanted and had, where it says so, and the phase that it came to.
 */
void mt_drive_add_circumstances(struct mt_drive_result *result);

/* The innermost line of the program's own code in the last traceback that it wrote: "at line 5 of
 * train.py". Returns 0 where there is none. */
int mt_drive_python_place(const char *said, char *text, size_t size);

#endif
