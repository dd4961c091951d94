/* SPDX-License-Identifier: MIT */
/* Few figures, often: what is kept between two looks, and for how long. */
#include "device/level.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <memtally/host.h>
#include <memtally/units.h>

#include "base/error.h"

#define STAT_NS        100000000u
#define LIMITS_NS      1000000000u
#define GLANCE_NS      250000000u
#define GLANCE_STAT_NS 500000000u
#define SHARES         256u /* of the limit or the host: what moved by one is read again */
#define LOW_SHARES     32u  /* of the host: the kernel reclaims only where less than one is free */
#define STAT_BYTES     8192
#define NUMBER_BYTES   64
#define FIRST_BYTES    256 /* of meminfo, which begins with what we want */

void mt_level_init(struct mt_level *level, const struct mt_host_os *os,
                   const struct mt_cgroup *cgroup)
{
    *level = (struct mt_level){.os = *os, .cgroup = *cgroup};
}

static void close_kept(const struct mt_host_os *os, struct mt_kept_file *file)
{
    if (file->is_open)
        os->close_file(os->context, file->fd);
    file->is_open = 0;
}

void mt_level_finish(struct mt_level *level)
{
    close_kept(&level->os, &level->meminfo);
    close_kept(&level->os, &level->usage);
    close_kept(&level->os, &level->stat);
}

/* Reads by the descriptor that is kept, else by the path, and keeps one from then on. Who cannot
 * make sense of what was read closes it. */
static long read_kept(const struct mt_host_os *os, struct mt_kept_file *file, const char *path,
                      char *bytes, size_t capacity)
{
    if (!os->open_file)
        return os->read_file(os->context, path, bytes, capacity);
    if (!file->is_open) {
        file->fd = os->open_file(os->context, path);
        if (file->fd < 0)
            return file->fd;
        file->is_open = 1;
    }
    return os->read_open(os->context, file->fd, bytes, capacity);
}

/* Also where the clock went backwards. */
static int is_old(uint64_t now_ns, uint64_t then_ns, uint64_t period_ns)
{
    return now_ns - then_ns >= period_ns;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* ---- glances ---- */

void mt_level_glance(struct mt_level *level)
{
    const struct mt_host_os *os = &level->os;
    struct mt_level_moment now = {.time_ns = os->now_ns(os->context)};
    uint64_t total_bytes = 0;
    now.is_set = os->read_free && os->read_free(os->context, &now.free_bytes, &total_bytes) == 0;
    now.is_plenty = now.free_bytes > total_bytes / LOW_SHARES;
    level->now = now;
}

/* Whether what was read then still stands, of a place of so many bytes. */
static int stands(const struct mt_level *level, const struct mt_level_moment *then,
                  uint64_t of_bytes)
{
    const struct mt_level_moment *now = &level->now;
    return then->is_set && now->is_plenty && !is_old(now->time_ns, then->time_ns, GLANCE_NS) &&
           distance(now->free_bytes, then->free_bytes) <= of_bytes / SHARES;
}

/* ---- the host ---- */

static const struct mt_field host_fields[] = {
    {"MemTotal", offsetof(struct mt_host_sample, memory_total_bytes)},
    {"MemAvailable", offsetof(struct mt_host_sample, memory_available_bytes)},
};

static long look_at_host(struct mt_level *level, struct mt_host_sample *sample)
{
    char bytes[FIRST_BYTES];
    long n = read_kept(&level->os, &level->meminfo, "/proc/meminfo", bytes, sizeof bytes);
    struct mt_span text = {bytes, bytes + (n > 0 ? n : 0)};
    mt_host_sample_unknown(sample);
    mt_span_fields(text, host_fields, 2, sample);
    return n;
}

static int is_whole(const struct mt_host_sample *sample)
{
    return sample->memory_total_bytes != MT_UNKNOWN && sample->memory_available_bytes != MT_UNKNOWN;
}

int mt_level_read_host(struct mt_level *level, struct mt_host_sample *sample,
                       struct mt_error *error)
{
    struct mt_host_sample seen;
    long n = look_at_host(level, &seen);
    if (!is_whole(&seen) && level->os.open_file) {
        close_kept(&level->os, &level->meminfo);
        n = look_at_host(level, &seen);
    }
    if (n < 0)
        return mt_host_fail_meminfo(n, error);
    if (!is_whole(&seen))
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "/proc/meminfo does not say what memory is available");
    *sample = seen;
    return 0;
}

int mt_level_glance_host(struct mt_level *level, struct mt_host_sample *sample,
                         struct mt_error *error)
{
    uint64_t free_then_bytes = level->host_then.free_bytes;
    uint64_t gone_bytes = 0;
    if (!stands(level, &level->host_then, level->total_bytes)) {
        level->host_then.is_set = 0;
        int status = mt_level_read_host(level, sample, error);
        if (status)
            return status;
        level->host_then = level->now;
        level->total_bytes = sample->memory_total_bytes;
        level->available_bytes = sample->memory_available_bytes;
    } else if (free_then_bytes > level->now.free_bytes) {
        gone_bytes = free_then_bytes - level->now.free_bytes;
    }
    mt_host_sample_unknown(sample);
    sample->memory_total_bytes = level->total_bytes;
    sample->memory_available_bytes =
        level->available_bytes > gone_bytes ? level->available_bytes - gone_bytes : 0;
    return 0;
}

/* ---- the control group ---- */

static long read_of_group(struct mt_level *level, struct mt_kept_file *file, const char *name,
                          char *bytes, size_t capacity)
{
    char path[PATH_MAX];
    if (file->is_open) /* and needs no path */
        return read_kept(&level->os, file, "", bytes, capacity);
    int n = snprintf(path, sizeof path, "%s/%s", level->cgroup.directory, name);
    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG
                                  : read_kept(&level->os, file, path, bytes, capacity);
}

static uint64_t look_at_usage(struct mt_level *level)
{
    char bytes[NUMBER_BYTES];
    uint64_t value;
    long n = read_of_group(level, &level->usage, mt_cgroup_usage_file(level->cgroup.version), bytes,
                           sizeof bytes);
    struct mt_span text = {bytes, bytes + (n > 0 ? n : 0)};
    if (mt_span_number(&text, &value))
        return value;
    close_kept(&level->os, &level->usage);
    return MT_UNKNOWN;
}

static uint64_t usage_of(struct mt_level *level)
{
    uint64_t bytes = look_at_usage(level);
    return bytes == MT_UNKNOWN && level->os.open_file ? look_at_usage(level) : bytes;
}

static int is_stat_due(const struct mt_level *level, uint64_t now_ns, uint64_t period_ns,
                       uint64_t usage_bytes)
{
    uint64_t moved = distance(usage_bytes, level->usage_at_stat_bytes);
    return !level->has_stat || is_old(now_ns, level->stat_ns, period_ns) ||
           moved > level->limit_bytes / SHARES;
}

static void look_at_stat(struct mt_level *level, uint64_t now_ns, uint64_t usage_bytes)
{
    char bytes[STAT_BYTES];
    for (int i = 0; i < 2; i++) {
        long n = read_of_group(level, &level->stat, "memory.stat", bytes, sizeof bytes);
        mt_cgroup_read_stat(level->cgroup.version, (struct mt_span){bytes, bytes + (n > 0 ? n : 0)},
                            &level->seen);
        if (level->seen.inactive_file_bytes != MT_UNKNOWN)
            break;
        close_kept(&level->os, &level->stat);
    }
    level->has_stat = 1;
    level->stat_ns = now_ns;
    level->usage_at_stat_bytes = usage_bytes;
}

static void tell_group(struct mt_level *level, uint64_t now_ns, uint64_t period_ns,
                       uint64_t usage_bytes, struct mt_host_sample *sample)
{
    if (is_stat_due(level, now_ns, period_ns, usage_bytes))
        look_at_stat(level, now_ns, usage_bytes);
    if (!level->has_limits || is_old(now_ns, level->limits_ns, LIMITS_NS)) {
        mt_cgroup_read_limits(&level->os, &level->cgroup, &level->seen, &level->limit_bytes,
                              &level->high_bytes);
        level->has_limits = 1;
        level->limits_ns = now_ns;
    }
    sample->cgroup_version = level->cgroup.version;
    sample->cgroup_limit_bytes = level->limit_bytes;
    sample->cgroup_high_bytes = level->high_bytes;
    sample->cgroup_usage_bytes = usage_bytes;
    sample->cgroup_working_set_bytes = mt_cgroup_working_set(usage_bytes, &level->seen);
}

void mt_level_read_group(struct mt_level *level, struct mt_host_sample *sample)
{
    if (level->cgroup.version == 0)
        return;
    uint64_t now_ns = level->os.now_ns(level->os.context);
    tell_group(level, now_ns, STAT_NS, usage_of(level), sample);
}

void mt_level_glance_group(struct mt_level *level, struct mt_host_sample *sample)
{
    if (level->cgroup.version == 0)
        return;
    if (!stands(level, &level->usage_then, level->limit_bytes)) {
        level->usage_bytes = usage_of(level);
        level->usage_then = level->now;
        level->usage_then.is_set &= level->usage_bytes != MT_UNKNOWN;
    }
    tell_group(level, level->now.time_ns, GLANCE_STAT_NS, level->usage_bytes, sample);
}
