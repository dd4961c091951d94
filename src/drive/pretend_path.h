/* SPDX-License-Identifier: MIT */
/* Finds the object that pretends devices. */
#ifndef DRIVE_PRETEND_PATH_H
#define DRIVE_PRETEND_PATH_H

#include <stddef.h>

struct mt_error; /* <memtally/error.h> */

/* Finds libmemtally-pretend-ggml.so: what the environment variable MEMTALLY_PRETEND names, else
 * beside this executable as it is installed or built, else where the build was configured to
 * install it. Returns 0, MT_ENOTFOUND saying where it was looked for, or MT_ELIMIT. */
int mt_drive_find_pretend(char *const *environment, char *path, size_t size,
                          struct mt_error *error);

#endif
