/* SPDX-License-Identifier: MIT */
/* Moves a process into a control group, as a program that is started in one does. */
#ifndef MT_TESTS_GROUP_JOIN_H
#define MT_TESTS_GROUP_JOIN_H

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "device/group.h"

/* Process `pid`, or the caller where it is 0. Returns 0, or -1 where the kernel refuses. */
static inline int group_join(const struct mt_group *group, int pid)
{
    char path[PATH_MAX];
    char text[32];
    int n = snprintf(text, sizeof text, "%d", pid);
    int fd = mt_group_procs_path(group, path) < 0 ? -1 : open(path, O_WRONLY | O_CLOEXEC);
    int is_written = fd >= 0 && write(fd, text, (size_t)n) == n;
    if (fd >= 0)
        close(fd);
    return is_written ? 0 : -1;
}

#endif
