/* SPDX-License-Identifier: MIT */
/* A child that becomes another program, and a parent that knows whether it did. */
#ifndef BASE_BECOME_H
#define BASE_BECOME_H

#include <sys/types.h>

/* What the child does: it ends in exec, and returns errno where that, or anything before it,
 * failed. It runs in its parent's memory, while the caller waits: what it stores is stored there.
 * It may call only what a child of a process with threads may: nothing that allocates. */
typedef int mt_become_fn(void *context);

/* Starts a child and waits until the child has become another program or has failed to. Returns the
 * child's pid, or -errno: then no child is left. */
pid_t mt_become(mt_become_fn *become, void *context);

#endif
