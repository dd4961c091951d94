/* SPDX-License-Identifier: MIT */
/* A captured machine: what /proc and /sys answered, replayed behind struct mt_host_os.
 *
 * A machine is one text file. Lines before the first header are comments. Then, for each path:
 *
 *   === PATH              the lines that follow are the file's content
 *   === PATH (NUL)        the same, with NUL bytes in place of the newlines
 *   === PATH -> TARGET    a symbolic link
 *   === PATH ! EACCES     reading fails (EACCES, EPERM, ENOENT, ESRCH, EIO, EOPNOTSUPP)
 *
 * Directories are there by what lies below them. tests/replay/capture writes such a file. */
#ifndef MT_TESTS_REPLAY_H
#define MT_TESTS_REPLAY_H

#include "device/host.h"

struct replay;

/* Opens tests/replay/NAME.machine and points *os at it. Fails the test where it cannot. */
struct replay *replay_open(const char *name, struct mt_host_os *os);

/* The same from text in memory. */
struct replay *replay_text(const char *text, struct mt_host_os *os);

void replay_close(struct replay *replay);

#endif
