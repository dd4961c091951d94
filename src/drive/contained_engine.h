/* SPDX-License-Identifier: MIT */
/* Which engine a container runs, and with which model. */
#ifndef DRIVE_CONTAINED_ENGINE_H
#define DRIVE_CONTAINED_ENGINE_H

#include "container/container.h"
#include "drive/profile.h"

struct mt_contained_engine {
    struct mt_profile_engine engine; /* paths are those in the container */
    char model_path[PATH_MAX];       /* likewise */
    int pid;                         /* of the one that runs */
};

/* Looks at the container's processes: their programs, command lines, mapped files and, of their
 * environments, the one variable that the engine takes a model from. `proc` is "/proc".
 * Errors: MT_EUNSUPPORTED (no engine that can be driven there), MT_ENOTFOUND (its model cannot be
 * told). */
int mt_contained_engine_find(const char *proc, const struct mt_container *container,
                             struct mt_contained_engine *found, struct mt_error *error);

#endif
