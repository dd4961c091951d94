/* SPDX-License-Identifier: MIT */
/* Passing on what a rehearsed program writes, while it runs: its standard output and its errors are
 * files of the rehearsal's folder. */
#ifndef CLI_REHEARSE_ECHO_H
#define CLI_REHEARSE_ECHO_H

#include <sys/types.h>

#include "drive/listener.h"

struct rehearse_echo {
    int fd[2]; /* output, errors */
    off_t at[2];
};

/* Files that are not there show nothing. */
void rehearse_echo_open(struct rehearse_echo *echo, const char *folder);

/* Passes on what is new. */
void rehearse_echo_show(struct rehearse_echo *echo, const struct mt_drive_listener *listener);
void rehearse_echo_close(struct rehearse_echo *echo);

#endif
