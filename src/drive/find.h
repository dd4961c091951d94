/* SPDX-License-Identifier: MIT */
/* Finding engines: by a given path, in the cache that scripts/engine fills, in PATH. */
#ifndef DRIVE_FIND_H
#define DRIVE_FIND_H

#include "profile.h"

/* Where to look besides a given path. All borrowed; NULL for nowhere. */
struct mt_profile_places {
    const char *engines;     /* folder with engines as scripts/engine lays them out */
    const char *path;        /* as PATH */
    const char *scripts;     /* folder of the programs that drive engines */
    const char *virtual_env; /* folder of the virtual environment that is active */
};

/* Finds an engine. `name` is a driver's name, or "auto": the first that is found of
 * node-llama-cpp, llama-server and llama-bench. `given` is a folder with node_modules or with the
 * programs, or a program itself; of a Python package, a Python or the folder of a virtual
 * environment. NULL: the places are searched.
 * Errors: MT_ENOTFOUND or MT_EARG (nothing of use at `given`), MT_EUNSUPPORTED (no such engine on
 * this machine), MT_ELIMIT. */
int mt_profile_find_engine(const char *name, const char *given,
                           const struct mt_profile_places *places, struct mt_profile_engine *engine,
                           struct mt_error *error);

/* Writes the folder of the engines that scripts/engine made to `path`: what the environment
 * variable MEMTALLY_ENGINES names, else "engines" in the cache of memtally; "" where the
 * environment says nothing. */
void mt_profile_engines_folder(char *const *environment, char *path, size_t size);

/* Writes the folder of the programs that drive engines to `path`, as this executable is built or
 * installed. */
void mt_profile_scripts_folder(char *path, size_t size);

#endif
