/* SPDX-License-Identifier: MIT */
/* Where the recorder library is. */
#ifndef CLI_RECORDER_PATH_H
#define CLI_RECORDER_PATH_H

#include <memtally/error.h>
#include <stddef.h>

/* Finds libmemtally-record.so: what the environment variable MEMTALLY_RECORDER names, else beside
 * this executable as it is installed or built, else where the build was configured to install it.
 * Writes the path to `path`. Returns 0, MT_ENOTFOUND saying where it was looked for, or
 * MT_ELIMIT. */
int cli_find_recorder(char *path, size_t size, struct mt_error *error);

#endif
