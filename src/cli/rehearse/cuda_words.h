/* SPDX-License-Identifier: MIT */
/* What a CUDA program's own words tell of how it ended. */
#ifndef CLI_REHEARSE_CUDA_WORDS_H
#define CLI_REHEARSE_CUDA_WORDS_H

#include "cli/rehearse/rehearse.h"

/* Reads the end of what the program wrote, on both streams, into result->said. */
void rehearse_read_said(struct rehearse_result *result);

/* Says in result->why why no process made a CUDA context. Returns 0 where nothing is known of that.
 */
int rehearse_explain_no_cuda(const struct rehearse_job *job, struct rehearse_result *result);

/* Says in result->why which library brings a runtime of NVIDIA's, where the program failed by that:
 * nothing can be said of its memory. Returns 0 where it did not. */
int rehearse_explain_private(struct rehearse_result *result);

/* An engine that found by itself that its memory does not suffice ends without an allocation that
 * was refused. Says so in result->why, with what to change; returns 0 where it is none of these. */
int rehearse_explain_engine(struct rehearse_result *result);

/* The same where an allocation was refused on the way: of sentences with which an engine ends
 * before it takes what it lacks. */
int rehearse_explain_foresight(struct rehearse_result *result);

/* Adds to that how much the engine wanted and had, where it says so, and the phase that it came to.
 */
void rehearse_add_circumstances(struct rehearse_result *result);

/* The innermost line of the program's own code in the last traceback that it wrote: "at line 5 of
 * train.py". Returns 0 where there is none. */
int rehearse_python_place(const char *said, char *text, size_t size);

#endif
