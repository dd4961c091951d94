/* SPDX-License-Identifier: MIT */
/* Pretended devices for a program that is recorded: --on of 'memtally run' and of
 * 'memtally profile'. */
#ifndef CLI_REHEARSE_RECORDED_H
#define CLI_REHEARSE_RECORDED_H

#include "cli/command.h"

struct rehearse_recorded;

/* Makes devices as `named` says ("H100-80GB", "2x24GiB") for the command line `argv`. On success
 * *environment is that of the program, which lasts as long as *recorded; the caller destroys it.
 * Returns an exit status, having complained in the name of `command` where that is none of success.
 */
int rehearse_open_recorded(const char *command, const struct cli_texts *named, char *const *argv,
                           struct rehearse_recorded **recorded, char *const **environment);

/* Gives back what processes held that have ended. Call it while the program runs. */
void rehearse_poll_recorded(struct rehearse_recorded *recorded);

/* Ends what is left of the program. Takes NULL. */
void rehearse_close_recorded(struct rehearse_recorded *recorded);

#endif
