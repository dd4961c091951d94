/* SPDX-License-Identifier: MIT */
/* Passing on what a rehearsed program writes, while it runs: its standard output and its errors are
 * files of the rehearsal's folder. */
#ifndef DRIVE_ECHO_H
#define DRIVE_ECHO_H

#include <sys/types.h>

#include "listener.h"

struct mt_drive_echo {
    int fd[2]; /* output, errors */
    off_t at[2];
};

/* Files that are not there show nothing. */
void mt_drive_echo_open(struct mt_drive_echo *echo, const char *folder);

/* Passes on what is new. */
void mt_drive_echo_show(struct mt_drive_echo *echo, const struct mt_drive_listener *listener);
void mt_drive_echo_close(struct mt_drive_echo *echo);

#endif
