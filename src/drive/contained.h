/* SPDX-License-Identifier: MIT */
/* Running an engine under the recorder in a container: what is needed is copied in, the engine is
 * started beside the container's own program, the recording is copied out, and what was copied is
 * removed, whatever way it ends. The container needs no shell. */
#ifndef DRIVE_CONTAINED_H
#define DRIVE_CONTAINED_H

#include "container/container.h"
#include "drive/runner.h"

struct mt_contained;

/* What is copied into the container, by its paths here. */
struct mt_contained_files {
    const char *recorder; /* for images with an older glibc */
    const char *inside;   /* the static program that runs the engine and removes all */
};

/* Copies the files in and starts what removes them. On success *contained is owned by the caller:
 * mt_contained_close() has them removed. Errors: of the engine of containers; MT_EPERM (the
 * container's network cannot be entered by this user), MT_EUNSUPPORTED (its root folder is
 * read-only). */
int mt_contained_open(const struct mt_container *container, const struct mt_contained_files *files,
                      struct mt_contained **contained, struct mt_error *error);

/* What runs an engine there; borrowed from *contained. */
const struct mt_profile_runner *mt_contained_runner(struct mt_contained *contained);

/* Why the recorder was not in the engine, as words that end a sentence; "" where it was. */
const char *mt_contained_why_outside(const struct mt_contained *contained);

/* Has the files removed and frees the object; takes NULL. Errors: MT_EIO where they are still
 * there, with their path. */
int mt_contained_close(struct mt_contained *contained, struct mt_error *error);

#endif
