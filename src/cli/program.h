/* SPDX-License-Identifier: MIT */
/* The program that is to be run, before it is. */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include <limits.h>
#include <stddef.h>

struct mt_error; /* <memtally/error.h> */

/* Whether `name` can be run: looked up in PATH as execvp(3) does. Returns CLI_EXIT_OK, or complains
 * and returns CLI_EXIT_NOT_FOUND or CLI_EXIT_NOT_EXECUTABLE. */
int cli_check_program(const char *name);

/* Makes a new folder "memtally-PROGRAM-YYYYmmdd-HHMMSS" in the current directory, with a number
 * appended where there is one, and writes its name to `path`. Returns 0 or an errno value. */
int cli_make_recording_folder(const char *program, char *path, size_t size);

/* Writes the name of a folder to `folder`: the one that the user named, else a new one among the
 * temporary files, called after `purpose`, which the caller removes. Room is left for the names of
 * files in it. Errors: MT_EARG (too long), or why none can be made. */
int cli_choose_folder(const char *named, const char *purpose, char folder[PATH_MAX],
                      struct mt_error *error);

#endif
