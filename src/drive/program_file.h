/* SPDX-License-Identifier: MIT */
/* What a program's file tells of the libraries in it. */
#ifndef DRIVE_PROGRAM_FILE_H
#define DRIVE_PROGRAM_FILE_H

#include <limits.h>

/* Looks a program up as the library does when it starts it. */
int mt_drive_find_in_path(const char *name, char *const *environment, char path[PATH_MAX]);

/* Whether a program's file has ggml in it: its own names stand in messages, whatever was stripped.
 */
int mt_drive_has_ggml(const char *path);

#endif
