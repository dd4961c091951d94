/* SPDX-License-Identifier: MIT */
/* Removing what was copied into a container: from inside, and from outside where nothing runs
 * there any more. Knows libc only. */
#ifndef CONTAINER_REMOVAL_H
#define CONTAINER_REMOVAL_H

#include <time.h>

/* Removes the folder `name` of folders of files, which lies in the folder `above`, and sets the
 * times of that (UTIME_OMIT: leaves them). Nothing in it is followed. Returns whether it is gone.
 */
int mt_container_remove(int above, const char *name, const struct timespec times[2]);

#endif
