/* SPDX-License-Identifier: MIT */
/* Finding engines, shared by find.c, find_python.c and find_paths.c. */
#ifndef DRIVE_FIND_INTERNAL_H
#define DRIVE_FIND_INTERNAL_H

#include "find.h"

/* Whether a regular file lies at `path` that we may execute. */
int mt_profile_is_program(const char *path);

/* Joins into `path`; 0 where it would be too long. */
int mt_profile_join(char path[PATH_MAX], const char *folder, const char *name);

/* Whether `folder` has something called `name` that can be read. */
int mt_profile_has(const char *folder, const char *name);

/* The program `name` in `folder`, and in the folders of `search` ("/usr/bin:/bin"). Return whether
 * there is one. */
int mt_profile_program_in(const char *folder, const char *name, char program[PATH_MAX]);
int mt_profile_program_in_path(const char *search, const char *name, char program[PATH_MAX]);

/* The newest version of `name` in the cache of engines that holds `inside`; `rest` is a pattern for
 * what follows the machine in the folder's name. Engines are laid out by name, version and machine.
 * Writes its path to `found`; returns whether there is one. */
int mt_profile_newest_engine(const struct mt_profile_places *places, const char *name,
                             const char *rest, const char *inside, char found[PATH_MAX]);

/* The driver of this name if its engine is a Python package, or NULL. Takes NULL. */
const struct mt_profile_driver *mt_profile_package_driver(const char *name);

/* mt_profile_find_engine() for such a driver. */
int mt_profile_find_python(const struct mt_profile_driver *driver, const char *given,
                           const struct mt_profile_places *places, struct mt_profile_engine *engine,
                           struct mt_error *error);

#endif
