/* SPDX-License-Identifier: MIT */
/* Finds the libraries that memtally preloads into programs. */
#ifndef DRIVE_OBJECTS_H
#define DRIVE_OBJECTS_H

#include <stddef.h>

struct mt_error; /* <memtally/error.h> */

/* Finds libmemtally-record.so: what the environment variable MEMTALLY_RECORDER names, else beside
 * this executable as it is installed or built, else where the build was configured to install it.
 * Writes the path to `path`. Returns 0, MT_ENOTFOUND saying where it was looked for, or
 * MT_ELIMIT. */
int mt_drive_find_recorder(char *const *environment, char *path, size_t size,
                           struct mt_error *error);

/* A library that memtally preloads. */
struct mt_drive_object {
    const char *what;     /* "the recorder" */
    const char *name;     /* of the file */
    const char *variable; /* of the environment, that names another */
    const char *built_in; /* folder in the build tree, below src: "/recorder" */
};

/* The same for any of them. */
int mt_drive_find_object(const struct mt_drive_object *object, char *const *environment, char *path,
                         size_t size, struct mt_error *error);

#endif
