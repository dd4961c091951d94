/* SPDX-License-Identifier: MIT */
/* Showing what a rehearsed program writes, while it runs.
 *
 * Its standard output and its errors are files of the rehearsal's folder; what is new in them is
 * copied to our standard error, since what comes of the rehearsal has standard output. */
#ifndef CLI_REHEARSE_ECHO_H
#define CLI_REHEARSE_ECHO_H

#include <sys/types.h>

#include "cli/progress.h"

struct rehearse_echo {
    int fd[2]; /* output, errors */
    off_t at[2];
    int is_within_line; /* what was shown last has not ended its line */
};

/* Files that are not there show nothing. */
void rehearse_echo_open(struct rehearse_echo *echo, const char *folder);

/* Shows what is new. The line of progress makes room for it; it may be NULL. */
void rehearse_echo_show(struct rehearse_echo *echo, struct cli_progress *progress);

/* Ends the last line where the program has not. */
void rehearse_echo_close(struct rehearse_echo *echo);

#endif
