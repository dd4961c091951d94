/* SPDX-License-Identifier: MIT */
/* A first look at the model file, so that an engine is not started in vain. */
#ifndef DRIVE_MODEL_FILE_H
#define DRIVE_MODEL_FILE_H

#include <limits.h>

struct mt_error; /* <memtally/error.h> */

/* Writes the absolute path of the model at `path` to `absolute`. Errors: MT_ENOTFOUND, MT_EPERM,
 * MT_EFORMAT (a folder, or a file that is no GGUF), MT_EIO. */
int mt_profile_model_file(const char *path, char absolute[PATH_MAX], struct mt_error *error);

/* The same of a folder with a config.json, as engines of Python packages read it. `engine` is the
 * name that an error says. */
int mt_profile_model_folder(const char *path, const char *engine, char absolute[PATH_MAX],
                            struct mt_error *error);

#endif
