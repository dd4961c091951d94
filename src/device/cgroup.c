/* SPDX-License-Identifier: MIT */
/* Which cgroup accounts for a process's memory, and what it says. Both versions and their mixture.
 *
 * Where a process belongs is in /proc/PID/cgroup, where hierarchies are mounted in
 * /proc/self/mountinfo. Both are written relative to the cgroup namespace of whoever reads them,
 * and the files are opened in the reader's mount namespace, so it must be the reader's own
 * mountinfo and not the process's. A container's mount may show only a part of the hierarchy (its
 * root field), which is then cut from the front of the process's path. */
#include "device/cgroup.h"

#include <memtally/host.h>
#include <memtally/units.h>

#include "device/span.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Version 1 writes the largest number of whole pages where there is no limit, which depends on the
 * page size; kernels before 3.19 wrote 2^63 - 1. No machine has half of that. */
#define NO_LIMIT_BYTES ((uint64_t)1 << 62)

#define MOUNTINFO_MAX ((size_t)16 << 20)
#define TEXT_BYTES    8192

const char *mt_cgroup_usage_file(int version)
{
    return version == 1 ? "memory.usage_in_bytes" : "memory.current";
}

/* Reads DIRECTORY[0..length)/name. Returns the number of bytes, or negative. */
static long read_in(const struct mt_host_os *os, const char *directory, size_t length,
                    const char *name, char *bytes, size_t capacity)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%.*s/%s", (int)length, directory, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return -ENAMETOOLONG;
    return os->read_file(os->context, path, bytes, capacity);
}

/* Shortens `length` of the directory by one name. Returns 0 at the mount point. */
static int to_parent(const struct mt_cgroup *cgroup, size_t *length)
{
    if (*length <= cgroup->mount_length)
        return 0;
    do {
        --*length;
    } while (*length > cgroup->mount_length && cgroup->directory[*length] != '/');
    return 1;
}

/* ---- finding ---- */

/* Whether `word` is one of a comma-separated list. */
static int has_word(struct mt_span list, const char *word)
{
    struct mt_span part;
    while (mt_span_until(&list, ',', &part)) {
        if (mt_span_is(&part, word))
            return 1;
    }
    return 0;
}

/* The paths of a process in the two kinds of hierarchy; empty where it is in none. */
struct membership {
    struct mt_span memory_v1;
    struct mt_span unified;
};

/* Lines are "4:memory,hugetlb:/path" for version 1 and "0::/path" for version 2. A path may have
 * colons of its own. */
static void read_membership(struct mt_span text, struct membership *membership)
{
    struct mt_span line;
    struct mt_span id;
    struct mt_span controllers;
    memset(membership, 0, sizeof *membership);
    while (mt_span_line(&text, &line)) {
        if (!mt_span_until(&line, ':', &id) || !mt_span_until(&line, ':', &controllers))
            continue;
        if (has_word(controllers, "memory"))
            membership->memory_v1 = line;
        else if (mt_span_is(&id, "0") && controllers.at == controllers.end)
            membership->unified = line;
    }
}

/* One line of mountinfo, as far as it matters here. */
struct mount {
    struct mt_span root;
    struct mt_span point;
    struct mt_span type;
    struct mt_span options; /* of the file system, not of the mount */
};

/* "36 35 0:32 /root /point rw,relatime shared:9 - cgroup cgroup rw,memory" */
static int read_mount(struct mt_span line, struct mount *mount)
{
    struct mt_span word;
    for (int i = 0; i < 3; i++) {
        if (!mt_span_until(&line, ' ', &word))
            return 0;
    }
    if (!mt_span_until(&line, ' ', &mount->root) || !mt_span_until(&line, ' ', &mount->point))
        return 0;
    do {
        if (!mt_span_until(&line, ' ', &word))
            return 0;
    } while (!mt_span_is(&word, "-"));
    return mt_span_until(&line, ' ', &mount->type) && mt_span_until(&line, ' ', &word) &&
           mt_span_until(&line, ' ', &mount->options);
}

static int is_octal(char c)
{
    return c >= '0' && c <= '7';
}

/* Copies a path of mountinfo, in which blanks and the like are written as "\040". Returns its
 * length, or 0 where it does not fit. */
static size_t copy_unescaped(struct mt_span from, char *to, size_t capacity)
{
    size_t length = 0;
    while (from.at < from.end && length + 1 < capacity) {
        const char *at = from.at;
        if (*at == '\\' && from.end - at >= 4 && is_octal(at[1]) && is_octal(at[2]) &&
            is_octal(at[3])) {
            to[length++] = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0'));
            from.at += 4;
        } else {
            to[length++] = *at;
            from.at++;
        }
    }
    to[length] = '\0';
    return from.at == from.end ? length : 0;
}

/* Cuts `root` from the front of `path`. Returns 0 where path is not at or below it, or leads out
 * of the namespace. */
static int below_root(struct mt_span path, const char *root, struct mt_span *rest)
{
    size_t length = strlen(root);
    if (mt_span_starts(&path, "/.."))
        return 0;
    if (length == 1) {
        *rest = path;
        return 1;
    }
    if (!mt_span_starts(&path, root))
        return 0;
    path.at += length;
    if (path.at < path.end && *path.at != '/')
        return 0;
    *rest = path;
    return 1;
}

/* Puts mount point and the part of `path` below the mount's root together. Returns the length of
 * that root, or 0 where this mount does not show the path. */
static size_t join(const struct mount *mount, struct mt_span path, struct mt_cgroup *cgroup)
{
    char root[PATH_MAX];
    struct mt_span rest;
    size_t root_length = copy_unescaped(mount->root, root, sizeof root);
    if (root_length == 0 || !below_root(path, root, &rest))
        return 0;
    size_t length = copy_unescaped(mount->point, cgroup->directory, sizeof cgroup->directory);
    size_t rest_length = mt_span_is(&rest, "/") ? 0 : (size_t)(rest.end - rest.at);
    if (length == 0 || length + rest_length >= sizeof cgroup->directory)
        return 0;
    memcpy(cgroup->directory + length, rest.at, rest_length);
    cgroup->directory[length + rest_length] = '\0';
    cgroup->mount_length = length;
    return root_length;
}

/* If several mounts show the path, finds the one that shows most of the way to the root. */
static int find_in_mounts(struct mt_span mounts, int version, struct mt_span path,
                          struct mt_cgroup *cgroup)
{
    struct mt_span line;
    struct mount mount;
    struct mt_cgroup candidate = {.version = version};
    size_t best = 0;
    while (mt_span_line(&mounts, &line)) {
        if (!read_mount(line, &mount))
            continue;
        if (!mt_span_is(&mount.type, version == 1 ? "cgroup" : "cgroup2"))
            continue;
        if (version == 1 && !has_word(mount.options, "memory"))
            continue;
        size_t root_length = join(&mount, path, &candidate);
        if (root_length && (best == 0 || root_length < best)) {
            best = root_length;
            *cgroup = candidate;
        }
    }
    return best != 0;
}

/* A cgroup without the memory controller is accounted for by the nearest one above that has it.
 * Returns 0 where none is visible. */
static int climb_to_memory(const struct mt_host_os *os, struct mt_cgroup *cgroup)
{
    size_t length = strlen(cgroup->directory);
    char bytes[512];
    const char *name = mt_cgroup_usage_file(cgroup->version);
    while (read_in(os, cgroup->directory, length, name, bytes, sizeof bytes) < 0) {
        if (!to_parent(cgroup, &length))
            return 0;
    }
    cgroup->directory[length] = '\0';
    return 1;
}

/* The root of version 2 has no figures of its own, but tells whether it has the controller. */
static int root_has_memory(const struct mt_host_os *os, struct mt_cgroup *cgroup)
{
    char bytes[512];
    struct mt_span word;
    if (cgroup->version != 2)
        return 0;
    long n = read_in(os, cgroup->directory, cgroup->mount_length, "cgroup.controllers", bytes,
                     sizeof bytes);
    if (n <= 0)
        return 0;
    struct mt_span line = {bytes, bytes + n - (bytes[n - 1] == '\n')};
    while (mt_span_until(&line, ' ', &word)) {
        if (mt_span_is(&word, "memory")) {
            cgroup->directory[cgroup->mount_length] = '\0';
            return 1;
        }
    }
    return 0;
}

/* All of a file of /proc, which has no upper size; NULL where it cannot be had. */
static char *read_all(const struct mt_host_os *os, const char *path, size_t *length)
{
    for (size_t capacity = 16384; capacity <= MOUNTINFO_MAX; capacity *= 4) {
        char *bytes = malloc(capacity);
        if (!bytes)
            return NULL;
        long n = os->read_file(os->context, path, bytes, capacity);
        if (n >= 0 && (size_t)n < capacity) {
            *length = (size_t)n;
            return bytes;
        }
        free(bytes);
        if (n < 0)
            return NULL;
    }
    return NULL;
}

static int find_with(const struct mt_host_os *os, const struct membership *membership,
                     struct mt_span mounts, struct mt_cgroup *cgroup)
{
    struct mt_span v1 = membership->memory_v1;
    struct mt_span v2 = membership->unified;
    /* A process is listed under "memory" in version 1 only while the controller is bound to it. */
    if (v1.at < v1.end)
        return find_in_mounts(mounts, 1, v1, cgroup) && climb_to_memory(os, cgroup);
    if (v2.at == v2.end || !find_in_mounts(mounts, 2, v2, cgroup))
        return 0;
    return climb_to_memory(os, cgroup) || root_has_memory(os, cgroup);
}

void mt_cgroup_find(const struct mt_host_os *os, int pid, struct mt_cgroup *cgroup)
{
    char path[64] = "/proc/self/cgroup";
    struct membership membership;
    struct mt_cgroup found;

    cgroup->version = 0;
    cgroup->mount_length = 0;
    cgroup->directory[0] = '\0';
    if (pid > 0)
        snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
    size_t length;
    size_t mounts_length;
    char *bytes = read_all(os, path, &length);
    char *mounts = bytes ? read_all(os, "/proc/self/mountinfo", &mounts_length) : NULL;
    if (mounts) {
        read_membership((struct mt_span){bytes, bytes + length}, &membership);
        if (find_with(os, &membership, (struct mt_span){mounts, mounts + mounts_length}, &found))
            *cgroup = found;
    }
    free(mounts);
    free(bytes);
}

/* ---- reading ---- */

/* The number in a file of one line; MT_UNKNOWN where it has another word, such as "max". */
static uint64_t read_number(const struct mt_host_os *os, const struct mt_cgroup *cgroup,
                            size_t length, const char *name)
{
    char bytes[64];
    uint64_t value;
    long n = read_in(os, cgroup->directory, length, name, bytes, sizeof bytes);
    struct mt_span text = {bytes, bytes + (n > 0 ? n : 0)};
    return mt_span_number(&text, &value) ? value : MT_UNKNOWN;
}

/* The smallest number in `name` from the cgroup up to the mount point. */
static uint64_t smallest_upwards(const struct mt_host_os *os, const struct mt_cgroup *cgroup,
                                 const char *name)
{
    uint64_t smallest = MT_UNKNOWN;
    size_t length = strlen(cgroup->directory);
    for (;;) {
        uint64_t value = read_number(os, cgroup, length, name);
        if (value < smallest)
            smallest = value;
        if (!to_parent(cgroup, &length))
            return smallest;
    }
}

static const struct mt_field v1_stat_fields[] = {
    {"hierarchical_memory_limit", offsetof(struct mt_cgroup_stat, limit_bytes)},
    {"total_inactive_file", offsetof(struct mt_cgroup_stat, inactive_file_bytes)},
};

static const struct mt_field v2_stat_fields[] = {
    {"inactive_file", offsetof(struct mt_cgroup_stat, inactive_file_bytes)},
};

void mt_cgroup_read_stat(int version, struct mt_span text, struct mt_cgroup_stat *stat)
{
    *stat = (struct mt_cgroup_stat){MT_UNKNOWN, MT_UNKNOWN};
    if (version == 1)
        mt_span_fields(text, v1_stat_fields, 2, stat);
    else
        mt_span_fields(text, v2_stat_fields, 1, stat);
}

/* Version 1 states the limit of the whole way up itself, even where a container cannot see it, and
 * knows whether the hierarchy counts. */
void mt_cgroup_read_limits(const struct mt_host_os *os, const struct mt_cgroup *cgroup,
                           const struct mt_cgroup_stat *stat, uint64_t *limit_bytes,
                           uint64_t *high_bytes)
{
    uint64_t limit = stat->limit_bytes;
    if (cgroup->version == 2)
        limit = smallest_upwards(os, cgroup, "memory.max");
    else if (limit == MT_UNKNOWN)
        limit = smallest_upwards(os, cgroup, "memory.limit_in_bytes");
    *limit_bytes = limit < NO_LIMIT_BYTES ? limit : MT_UNKNOWN;
    *high_bytes = cgroup->version == 2 ? smallest_upwards(os, cgroup, "memory.high") : MT_UNKNOWN;
}

uint64_t mt_cgroup_working_set(uint64_t usage_bytes, const struct mt_cgroup_stat *stat)
{
    uint64_t inactive_bytes = stat->inactive_file_bytes;
    if (usage_bytes == MT_UNKNOWN || inactive_bytes == MT_UNKNOWN)
        return MT_UNKNOWN;
    return usage_bytes > inactive_bytes ? usage_bytes - inactive_bytes : 0;
}

static struct mt_span read_text(const struct mt_host_os *os, const struct mt_cgroup *cgroup,
                                const char *name, char bytes[TEXT_BYTES])
{
    long n = read_in(os, cgroup->directory, strlen(cgroup->directory), name, bytes, TEXT_BYTES);
    return (struct mt_span){bytes, bytes + (n > 0 ? n : 0)};
}

void mt_cgroup_read(const struct mt_host_os *os, const struct mt_cgroup *cgroup,
                    struct mt_host_sample *sample)
{
    static const struct mt_field oom_kill = {"oom_kill", 0};
    char bytes[TEXT_BYTES];
    struct mt_cgroup_stat stat;
    int version = cgroup->version;
    size_t length = strlen(cgroup->directory);
    if (version == 0)
        return;
    sample->cgroup_version = version;
    sample->cgroup_usage_bytes = read_number(os, cgroup, length, mt_cgroup_usage_file(version));
    mt_cgroup_read_stat(version, read_text(os, cgroup, "memory.stat", bytes), &stat);
    mt_cgroup_read_limits(os, cgroup, &stat, &sample->cgroup_limit_bytes,
                          &sample->cgroup_high_bytes);
    sample->cgroup_working_set_bytes = mt_cgroup_working_set(sample->cgroup_usage_bytes, &stat);
    sample->cgroup_peak_bytes =
        read_number(os, cgroup, length, version == 1 ? "memory.max_usage_in_bytes" : "memory.peak");
    const char *events = version == 1 ? "memory.oom_control" : "memory.events";
    mt_span_fields(read_text(os, cgroup, events, bytes), &oom_kill, 1, &sample->cgroup_oom_kills);
}
