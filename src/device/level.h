/* SPDX-License-Identifier: MIT */
/* How full host and control group are, for whoever asks a hundred times a second.
 *
 * Files stay open where the machine allows it. What changes seldom is read seldom: limits once a
 * second; a group's droppable page cache ten times a second, or once its use has moved by a part of
 * its limit. The kernel itself adds up that cache every two seconds. Everything else is of the
 * moment. A level belongs to one thread.
 *
 * A glance asks the kernel only for its free memory, in a twentieth of the time. What was read
 * before stands while free memory has hardly moved and is plenty, for a quarter of a second at
 * most; a group's droppable page cache stands for half a second.
 *
 * A program that closes descriptors which are not its own may give ours to another file. So we open
 * a file again if it does not read as the kernel's text. */
#ifndef MT_DEVICE_LEVEL_H
#define MT_DEVICE_LEVEL_H

#include "device/cgroup.h"
#include "device/host.h"

/* A file that is read again and again. All zero: not opened yet. */
struct mt_kept_file {
    int is_open;
    int fd;
};

/* All zero: there is none. */
struct mt_level_moment {
    int is_set;
    uint64_t time_ns;
    uint64_t free_bytes; /* of the host */
    int is_plenty;       /* so much is free that the kernel reclaims nothing */
};

struct mt_level {
    struct mt_host_os os;
    struct mt_cgroup cgroup;
    struct mt_kept_file meminfo;
    struct mt_kept_file usage;
    struct mt_kept_file stat;
    int has_stat;
    int has_limits;
    uint64_t stat_ns;
    uint64_t limits_ns;
    uint64_t usage_at_stat_bytes;
    struct mt_cgroup_stat seen; /* at stat_ns */
    uint64_t limit_bytes;       /* at limits_ns */
    uint64_t high_bytes;
    struct mt_level_moment now;       /* of the glance */
    struct mt_level_moment host_then; /* of the two below */
    uint64_t total_bytes;
    uint64_t available_bytes;
    struct mt_level_moment usage_then; /* of what follows */
    uint64_t usage_bytes;
};

/* Sets *level to the host and to a control group that is known (version 0: none). */
void mt_level_init(struct mt_level *level, const struct mt_host_os *os,
                   const struct mt_cgroup *cgroup);

void mt_level_finish(struct mt_level *level);

/* Sets total and available memory of the host; all else is unknown. Errors: MT_EUNSUPPORTED (no
 * /proc, or a kernel that does not say what is available), MT_EPERM, MT_EIO. */
int mt_level_read_host(struct mt_level *level, struct mt_host_sample *sample,
                       struct mt_error *error);

/* Adds the group's version, use, working set, limit and high mark. */
void mt_level_read_group(struct mt_level *level, struct mt_host_sample *sample);

/* Begins a glance: asks for the time and for free memory. */
void mt_level_glance(struct mt_level *level);

/* The same two at that glance. The host's available memory is what was read less what is no longer
 * free, never more than was read. If the machine cannot say what is free, they read. */
int mt_level_glance_host(struct mt_level *level, struct mt_host_sample *sample,
                         struct mt_error *error);
void mt_level_glance_group(struct mt_level *level, struct mt_host_sample *sample);

#endif
