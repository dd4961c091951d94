/* SPDX-License-Identifier: MIT */
/* Making, limiting and ending a control group. What a group says is read as device/cgroup.c reads
 * it, which finds the one to start from. */
#include "device/group.h"

#include <memtally/units.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "device/span.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX     "memtally-"
#define PIDS_MAX   512u
#define KILL_TURNS 16

static int path_in(const char *directory, const char *name, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/%s", directory, name);
    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int write_in(const struct mt_group_os *os, const char *directory, const char *name,
                    const char *text)
{
    char path[PATH_MAX];
    int failed = path_in(directory, name, path);
    return failed ? failed : os->write_file(os->context, path, text);
}

static long read_in(const struct mt_group_os *os, const char *directory, const char *name,
                    char *bytes, size_t capacity)
{
    char path[PATH_MAX];
    int failed = path_in(directory, name, path);
    long n = failed ? failed : os->host.read_file(os->host.context, path, bytes, capacity - 1);
    bytes[n > 0 ? n : 0] = '\0';
    return n;
}

static uint64_t number_in(const struct mt_group_os *os, const struct mt_group *group,
                          const char *name)
{
    char bytes[64];
    uint64_t value;
    long n = read_in(os, group->directory, name, bytes, sizeof bytes);
    struct mt_span text = {bytes, bytes + (n > 0 ? n : 0)};
    return mt_span_number(&text, &value) ? value : MT_UNKNOWN;
}

static int has_memory(const struct mt_group_os *os, const char *directory, const char *name)
{
    char bytes[512];
    if (read_in(os, directory, name, bytes, sizeof bytes) < 0)
        return 0;
    for (char *rest, *word = strtok_r(bytes, " \n", &rest); word;
         word = strtok_r(NULL, " \n", &rest))
        if (strcmp(word, "memory") == 0)
            return 1;
    return 0;
}

/* ---- where a group can be made ---- */

/* Groups of callers that were killed. One that has processes cannot be removed. */
struct sweep {
    const struct mt_group_os *os;
    const char *directory;
};

static int sweep_one(void *context, const char *name)
{
    const struct sweep *sweep = context;
    char path[PATH_MAX];
    int pid;
    if (sscanf(name, PREFIX "%d-", &pid) != 1 || pid == sweep->os->pid ||
        mt_process_read(&sweep->os->host, pid, &(struct mt_process){0}, NULL) != MT_ENOTFOUND)
        return 0;
    if (path_in(sweep->directory, name, path) == 0)
        sweep->os->remove_folder(sweep->os->context, path);
    return 0;
}

/* Lengthens `directory` by the group that it makes; leaves it as it is where that fails. */
static int make_in(const struct mt_group_os *os, char directory[PATH_MAX], unsigned number)
{
    struct sweep sweep = {os, directory};
    size_t length = strlen(directory);
    os->host.list(os->host.context, directory, sweep_one, &sweep);
    int n = snprintf(directory + length, PATH_MAX - length, "/" PREFIX "%d-%u", os->pid, number);
    int failed = n < 0 || (size_t)n >= PATH_MAX - length ? -ENAMETOOLONG
                                                         : os->make_folder(os->context, directory);
    if (failed)
        directory[length] = '\0';
    return failed;
}

static int is_alone_in(const struct mt_group_os *os, const char *directory)
{
    char bytes[64];
    char own[32];
    snprintf(own, sizeof own, "%d\n", os->pid);
    return read_in(os, directory, "cgroup.procs", bytes, sizeof bytes) > 0 &&
           strcmp(bytes, own) == 0;
}

/* A group of version 2 has processes or hands its controllers down, but for the root. Who is alone
 * in a group that was delegated to him makes room by moving one down. */
static int hand_down_memory(const struct mt_group_os *os, const char *directory)
{
    char path[PATH_MAX];
    if (has_memory(os, directory, "cgroup.subtree_control"))
        return 0;
    if (!has_memory(os, directory, "cgroup.controllers"))
        return -ENOTSUP;
    int failed = write_in(os, directory, "cgroup.subtree_control", "+memory");
    if (failed != -EBUSY || !is_alone_in(os, directory) ||
        path_in(directory, PREFIX "itself", path) != 0)
        return failed;
    failed = os->make_folder(os->context, path);
    if (!failed || failed == -EEXIST)
        failed = write_in(os, path, "cgroup.procs", "0");
    return failed ? failed : write_in(os, directory, "cgroup.subtree_control", "+memory");
}

static int climb(const struct mt_cgroup *cgroup, char *directory)
{
    char *slash = strrchr(directory + cgroup->mount_length, '/');
    if (!slash)
        return 0;
    *slash = '\0';
    return 1;
}

int mt_group_make(const struct mt_group_os *os, unsigned number, struct mt_group *group,
                  struct mt_error *error)
{
    struct mt_cgroup own;
    mt_cgroup_find(&os->host, 0, &own);
    if (own.version == 0)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "no control group accounts for memory here; mount /sys/fs/cgroup");
    int failed;
    do {
        failed = own.version == 2 ? hand_down_memory(os, own.directory) : 0;
        if (!failed)
            failed = make_in(os, own.directory, number);
    } while (failed && own.version == 2 && climb(&own, own.directory));
    if (failed)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "no control group with a limit can be made in %.200s: %s; %s", own.directory,
                       strerror(-failed),
                       own.version == 2
                           ? "start memtally by: systemd-run --user --scope -p Delegate=yes"
                           : "run as root, or in a container that may write its groups");
    group->version = own.version;
    memcpy(group->directory, own.directory, sizeof own.directory);
    return 0;
}

int mt_group_try(const struct mt_group_os *os, struct mt_error *error)
{
    struct mt_group group;
    int status = mt_group_make(os, UINT32_MAX, &group, error);
    return status < 0 ? status : mt_group_remove(os, &group);
}

/* ---- a group ---- */

static int fail_group(struct mt_error *error, int failed, const struct mt_group *group,
                      const char *what)
{
    return mt_fail_errno(error, -failed, "cannot %s of the control group %s", what,
                         group->directory);
}

int mt_group_limit(const struct mt_group_os *os, const struct mt_group *group, uint64_t bytes,
                   struct mt_error *error)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    int is_first = group->version == 1;
    int failed =
        write_in(os, group->directory, is_first ? "memory.limit_in_bytes" : "memory.max", text);
    if (failed)
        return fail_group(error, failed, group, "set the limit");
    /* A kernel without swap has neither file. */
    failed = is_first ? write_in(os, group->directory, "memory.memsw.limit_in_bytes", text)
                      : write_in(os, group->directory, "memory.swap.max", "0");
    return failed && failed != -ENOENT && failed != -EOPNOTSUPP && failed != -EACCES
               ? fail_group(error, failed, group, "set the limit of swap")
               : 0;
}

int mt_group_wait_at(const struct mt_group_os *os, const struct mt_group *group, uint64_t bytes,
                     struct mt_error *error)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    int is_first = group->version == 1;
    int failed = write_in(os, group->directory, is_first ? "memory.oom_control" : "memory.high",
                          is_first ? "1" : text);
    if (failed)
        return fail_group(error, failed, group, "set the limit");
    return is_first ? mt_group_limit(os, group, bytes, error) : 0;
}

int mt_group_procs_path(const struct mt_group *group, char path[PATH_MAX])
{
    return path_in(group->directory, "cgroup.procs", path) ? MT_ELIMIT : 0;
}

struct stat_figures {
    uint64_t shared;
    uint64_t kills;
    uint64_t max;
};

void mt_group_read(const struct mt_group_os *os, const struct mt_group *group,
                   struct mt_group_figures *figures)
{
    static const struct mt_field stat[] = {{"shmem", offsetof(struct stat_figures, shared)}};
    static const struct mt_field events[] = {{"oom_kill", offsetof(struct stat_figures, kills)},
                                             {"max", offsetof(struct stat_figures, max)}};
    struct stat_figures found = {MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN};
    int is_first = group->version == 1;
    char bytes[8192];
    long n = read_in(os, group->directory, "memory.stat", bytes, sizeof bytes);
    if (n > 0)
        mt_span_fields((struct mt_span){bytes, bytes + n}, stat, 1, &found);
    n = read_in(os, group->directory, is_first ? "memory.oom_control" : "memory.events", bytes,
                sizeof bytes);
    if (n > 0)
        mt_span_fields((struct mt_span){bytes, bytes + n}, events, 2, &found);
    figures->usage_bytes =
        number_in(os, group, is_first ? "memory.usage_in_bytes" : "memory.current");
    figures->peak_bytes =
        number_in(os, group, is_first ? "memory.max_usage_in_bytes" : "memory.peak");
    figures->refusals = is_first ? number_in(os, group, "memory.failcnt") : found.max;
    figures->shared_bytes = found.shared;
    figures->oom_kills = found.kills;
}

int mt_group_pids(const struct mt_group_os *os, const struct mt_group *group, int *pids,
                  size_t capacity, size_t *n)
{
    char bytes[PIDS_MAX * 12];
    long length = read_in(os, group->directory, "cgroup.procs", bytes, sizeof bytes);
    if (length < 0)
        return mt_code_of_errno((int)-length);
    size_t found = 0;
    for (char *at = bytes, *end; found < capacity; at = end) {
        long pid = strtol(at, &end, 10);
        if (end == at)
            break;
        pids[found++] = (int)pid;
    }
    *n = found;
    return 0;
}

int mt_group_freeze(const struct mt_group_os *os, const struct mt_group *group, int is_frozen,
                    struct mt_error *error)
{
    if (group->version != 2)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "a control group of version 1 with memory has no freezer");
    int failed = write_in(os, group->directory, "cgroup.freeze", is_frozen ? "1" : "0");
    if (failed == -ENOENT)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "this kernel does not freeze control groups; use Linux 5.2 or later");
    return failed ? fail_group(error, failed, group, "change the freezer") : 0;
}

void mt_group_kill(const struct mt_group_os *os, const struct mt_group *group)
{
    int pids[PIDS_MAX];
    size_t n = 1;
    if (group->version == 2 && write_in(os, group->directory, "cgroup.kill", "1") == 0)
        return;
    /* Who is forked between the reading and the killing is there at the next reading. */
    for (int turn = 0; n > 0 && turn < KILL_TURNS; turn++) {
        if (mt_group_pids(os, group, pids, PIDS_MAX, &n) < 0)
            return;
        for (size_t i = 0; i < n; i++)
            if (pids[i] > 0 && pids[i] != os->pid)
                os->signal(os->context, pids[i], SIGKILL);
    }
}

int mt_group_remove(const struct mt_group_os *os, const struct mt_group *group)
{
    int failed = os->remove_folder(os->context, group->directory);
    return failed && failed != -ENOENT ? mt_code_of_errno(-failed) : 0;
}
