/* SPDX-License-Identifier: MIT */
/* A control group of our own: a program and what it starts, held to a limit and ended together.
 *
 * In version 1 it is one of the memory controller's hierarchy, in version 2 one with the memory
 * controller. It is made below the caller's own group, or below the nearest one above that lets
 * groups with a limit be made in it. */
#ifndef MT_DEVICE_GROUP_H
#define MT_DEVICE_GROUP_H

#include "device/host.h"

/* The outside world of this file. Each function gives a negative errno where it fails. */
struct mt_group_os {
    struct mt_host_os host;
    void *context;
    int pid; /* of the caller */
    int (*make_folder)(void *context, const char *path);
    int (*remove_folder)(void *context, const char *path);
    int (*write_file)(void *context, const char *path, const char *text); /* of one that is there */
    int (*signal)(void *context, int pid, int number);
};

void mt_group_os_init(struct mt_group_os *os);

/* version 0: none. */
struct mt_group {
    int version;
    char directory[PATH_MAX];
};

/* What a group says; MT_UNKNOWN where it does not. */
struct mt_group_figures {
    uint64_t usage_bytes;
    uint64_t peak_bytes;
    uint64_t shared_bytes; /* of its usage, shared memory, which outlives processes */
    uint64_t oom_kills;
    uint64_t
        refusals; /* how often its limit was met, but of version 1 with swap where swap's was */
};

/* Makes a group called memtally-PID-`number`, and removes those that callers left which are gone.
 * Errors: MT_EUNSUPPORTED (no group can be made; the text says what would help), MT_ENOMEM. */
int mt_group_make(const struct mt_group_os *os, unsigned number, struct mt_group *group,
                  struct mt_error *error);

/* Whether a group could be made here: makes one and removes it. Errors: as mt_group_make(). */
int mt_group_try(const struct mt_group_os *os, struct mt_error *error);

/* Refuses the group more memory than `bytes`, swap among it. Errors: MT_EPERM, MT_EIO. */
int mt_group_limit(const struct mt_group_os *os, const struct mt_group *group, uint64_t bytes,
                   struct mt_error *error);

/* Lets the group wait for memory past `bytes`, and not be killed: by the high mark of version 2, or
 * of version 1 by the limit without its OOM killer. Errors: MT_EPERM, MT_EIO. */
int mt_group_wait_at(const struct mt_group_os *os, const struct mt_group *group, uint64_t bytes,
                     struct mt_error *error);

/* The file into which the id of a process is written to move it here, "0" for the writer. The
 * process keeps what it has charged elsewhere. */
int mt_group_procs_path(const struct mt_group *group, char path[PATH_MAX]);

void mt_group_read(const struct mt_group_os *os, const struct mt_group *group,
                   struct mt_group_figures *figures);

/* Sets pids[0..*n) to its processes, at most `capacity` of them. Errors: MT_ENOTFOUND, MT_EPERM. */
int mt_group_pids(const struct mt_group_os *os, const struct mt_group *group, int *pids,
                  size_t capacity, size_t *n);

/* Stops its processes where they are, or lets them go on. Errors: MT_EUNSUPPORTED (version 1, whose
 * freezer is another hierarchy; a kernel before 5.2). */
int mt_group_freeze(const struct mt_group_os *os, const struct mt_group *group, int is_frozen,
                    struct mt_error *error);

/* Kills its processes, those too that they start meanwhile. It may take a moment until they are
 * gone. */
void mt_group_kill(const struct mt_group_os *os, const struct mt_group *group);

/* Errors: MT_EBUSY (it has processes). */
int mt_group_remove(const struct mt_group_os *os, const struct mt_group *group);

#endif
