/* SPDX-License-Identifier: MIT */
/* Sees to it that a container keeps nothing of ours, where the program in it cannot: it was not
 * started yet, or the container has ended. A child of this process waits for this one's end, also
 * by a signal that kills it, and removes the folder then. It needs the right to look into the
 * container's files (root's). */
#ifndef DRIVE_CONTAINED_KEEPER_H
#define DRIVE_CONTAINED_KEEPER_H

#include <sys/types.h>
#include <time.h>

#include "container/container.h"

struct mt_contained_keeper {
    int root;  /* the container's root folder; -1 where this user may not open it */
    int first; /* a descriptor of the container's first process */
    int told;  /* what the child reads */
    pid_t child;
    const char *folder;       /* its name in the root folder; borrowed */
    struct timespec times[2]; /* of the root folder, before anything is copied */
};

void mt_contained_keeper_open(struct mt_contained_keeper *keeper,
                              const struct mt_container *container, const char *folder);

/* The program that removes the folder from inside runs now. */
void mt_contained_keeper_note_guard(const struct mt_contained_keeper *keeper);

/* Whether the container's first process has ended, or does within that time. */
int mt_contained_keeper_has_ended(const struct mt_contained_keeper *keeper, int wait_ms);

/* Removes the folder from here. Returns whether it is gone. */
int mt_contained_keeper_remove(const struct mt_contained_keeper *keeper);

/* Ends the child, which then removes nothing. */
void mt_contained_keeper_close(struct mt_contained_keeper *keeper);

#endif
