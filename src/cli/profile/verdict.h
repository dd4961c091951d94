/* SPDX-License-Identifier: MIT */
/* Whether a session gave what the user asked for, and what to say if it did not. */
#ifndef CLI_PROFILE_VERDICT_H
#define CLI_PROFILE_VERDICT_H

#include "drive/session.h"

/* Judges a session that has ended. Returns 0, or the exit code of the program with what went wrong
 * on stderr: the engine's own status where it failed by itself, 128 + signal where the user stopped
 * us. `directory` is where recording and log are kept, or NULL. */
int profile_verdict(struct mt_profile_job *job, const struct mt_profile_outcome *outcome,
                    const char *directory);

#endif
