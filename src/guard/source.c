/* SPDX-License-Identifier: MIT */
/* The places of this machine as sources of a monitor. */
#include "guard/source.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/host.h>
#include <memtally/units.h>

#include "base/error.h"
#include "device/level.h"

/* ---- host and control group ---- */

struct host {
    pthread_mutex_t lock; /* of the level */
    struct mt_level level;
    int is_group; /* the group alone */
};

/* A control group is slowed down at its high mark and refused at its limit: the lower one counts.
 * What the kernel can drop of page cache without writing it is available. */
static int group_figures(const struct mt_host_sample *sample, struct mt_monitor_figures *figures)
{
    uint64_t limit = sample->cgroup_limit_bytes;
    uint64_t used = sample->cgroup_working_set_bytes;
    if (sample->cgroup_version == 0)
        return 0;
    if (used == MT_UNKNOWN)
        used = sample->cgroup_usage_bytes;
    if (sample->cgroup_high_bytes < limit)
        limit = sample->cgroup_high_bytes;
    if (limit == MT_UNKNOWN || used == MT_UNKNOWN)
        return 0;
    *figures = (struct mt_monitor_figures){limit, limit > used ? limit - used : 0, MT_UNKNOWN};
    return 1;
}

static void ask_group(struct mt_level *level, int is_glance, struct mt_host_sample *sample)
{
    if (is_glance)
        mt_level_glance_group(level, sample);
    else
        mt_level_read_group(level, sample);
}

static int host_figures(struct mt_level *level, int is_glance, struct mt_monitor_figures *figures,
                        struct mt_error *error)
{
    struct mt_host_sample sample;
    struct mt_monitor_figures group;
    int status = is_glance ? mt_level_glance_host(level, &sample, error)
                           : mt_level_read_host(level, &sample, error);
    if (status)
        return status;
    ask_group(level, is_glance, &sample);
    *figures = (struct mt_monitor_figures){sample.memory_total_bytes, sample.memory_available_bytes,
                                           MT_UNKNOWN};
    if (!group_figures(&sample, &group))
        return 0;
    if (group.total_bytes < figures->total_bytes)
        figures->total_bytes = group.total_bytes;
    if (group.available_bytes < figures->available_bytes)
        figures->available_bytes = group.available_bytes;
    return 0;
}

static int only_group_figures(struct mt_level *level, int is_glance,
                              struct mt_monitor_figures *figures, struct mt_error *error)
{
    struct mt_host_sample sample;
    mt_host_sample_unknown(&sample);
    ask_group(level, is_glance, &sample);
    return group_figures(&sample, figures)
               ? 0
               : mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                         "no control group with a limit holds this process; watch the host");
}

static int ask_host(struct host *host, int is_glance, struct mt_monitor_figures *figures,
                    struct mt_error *error)
{
    pthread_mutex_lock(&host->lock);
    if (is_glance)
        mt_level_glance(&host->level);
    int status = host->is_group ? only_group_figures(&host->level, is_glance, figures, error)
                                : host_figures(&host->level, is_glance, figures, error);
    pthread_mutex_unlock(&host->lock);
    return status;
}

static int read_host(void *context, struct mt_monitor_figures *figures, struct mt_error *error)
{
    return ask_host(context, 0, figures, error);
}

static int glance_at_host(void *context, struct mt_monitor_figures *figures, struct mt_error *error)
{
    return ask_host(context, 1, figures, error);
}

static void close_host(void *context)
{
    struct host *host = context;
    mt_level_finish(&host->level);
    pthread_mutex_destroy(&host->lock);
    free(host);
}

int mt_monitor_open_host(const struct mt_host_os *os, int pid, int is_group,
                         struct mt_monitor_source *source, struct mt_error *error)
{
    struct mt_monitor_figures figures;
    struct host *host = calloc(1, sizeof *host);
    if (!host)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a monitor's source");
    struct mt_cgroup cgroup;
    mt_cgroup_find(os, pid, &cgroup);
    pthread_mutex_init(&host->lock, NULL);
    mt_level_init(&host->level, os, &cgroup);
    host->is_group = is_group;
    int status = read_host(host, &figures, error);
    if (status) {
        close_host(host);
        return status;
    }
    *source = (struct mt_monitor_source){"kernel", host, read_host, close_host, glance_at_host};
    return 0;
}

/* ---- a program ---- */

struct program {
    pthread_mutex_t lock; /* of all below */
    struct mt_host_os os;
    struct mt_level level;
    struct mt_process root;
    struct mt_process_list tree;
};

/* Whether the pid is still that program. */
static int runs(const struct program *program)
{
    struct mt_process now;
    return mt_process_read(&program->os, program->root.pid, &now, NULL) == 0 &&
           now.start_ticks == program->root.start_ticks && now.state != 'Z' && now.state != 'X';
}

static int program_figures(struct program *program, struct mt_monitor_figures *figures,
                           struct mt_error *error)
{
    uint64_t used = 0;
    if (!runs(program))
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "process %d has ended",
                       program->root.pid);
    int status = host_figures(&program->level, 0, figures, error);
    status = status
                 ? status
                 : mt_process_descendants(&program->os, program->root.pid, &program->tree, error);
    if (status)
        return status;
    for (size_t i = 0; i < program->tree.n; i++) {
        uint64_t bytes = mt_process_resident_bytes(&program->os, program->tree.items[i].pid);
        used += bytes == MT_UNKNOWN ? 0 : bytes;
    }
    figures->largest_bytes = figures->available_bytes;
    figures->available_bytes = figures->total_bytes > used ? figures->total_bytes - used : 0;
    return 0;
}

static int read_program(void *context, struct mt_monitor_figures *figures, struct mt_error *error)
{
    struct program *program = context;
    pthread_mutex_lock(&program->lock);
    int status = program_figures(program, figures, error);
    pthread_mutex_unlock(&program->lock);
    return status;
}

static void close_program(void *context)
{
    struct program *program = context;
    mt_level_finish(&program->level);
    pthread_mutex_destroy(&program->lock);
    mt_process_list_finish(&program->tree);
    free(program);
}

int mt_monitor_open_program(const struct mt_host_os *os, int pid, struct mt_monitor_source *source,
                            struct mt_error *error)
{
    struct mt_monitor_figures figures;
    struct program *program = calloc(1, sizeof *program);
    if (!program)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a monitor's source");
    struct mt_cgroup cgroup;
    mt_cgroup_find(os, pid, &cgroup);
    pthread_mutex_init(&program->lock, NULL);
    mt_level_init(&program->level, os, &cgroup);
    program->os = *os;
    int status = mt_process_read(os, pid, &program->root, error);
    status = status ? status : read_program(program, &figures, error);
    if (status) {
        close_program(program);
        return status;
    }
    *source = (struct mt_monitor_source){"kernel", program, read_program, close_program, NULL};
    return 0;
}

/* ---- NVIDIA's devices ---- */

static int read_device(void *context, struct mt_monitor_figures *figures, struct mt_error *error)
{
    struct mt_nvml_memory memory;
    int status = mt_nvml_device_memory(context, &memory, error);
    if (status == 0)
        *figures = (struct mt_monitor_figures){memory.total_bytes, memory.free_bytes, MT_UNKNOWN};
    return status;
}

static void close_device(void *context)
{
    mt_nvml_device_close(context);
    free(context);
}

int mt_monitor_open_device(mt_nvml_open open, void *context, int index,
                           struct mt_monitor_source *source, struct mt_error *error)
{
    struct mt_nvml_device *device = calloc(1, sizeof *device);
    if (!device)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a monitor's source");
    int status = mt_nvml_device_open(device, open, context, index, error);
    if (status) {
        free(device);
        return status;
    }
    *source = (struct mt_monitor_source){"NVML", device, read_device, close_device, NULL};
    return 0;
}

/* ---- by name ---- */

static int open_library(void *context, struct mt_nvml *nvml, struct mt_error *error)
{
    (void)context;
    return mt_nvml_open_library(nvml, error);
}

/* The number after `before`, as in "gpu7", or -1. */
static int number_after(const char *place, const char *before)
{
    size_t length = strlen(before);
    if (strncmp(place, before, length) != 0 || place[length] < '0' || place[length] > '9')
        return -1;
    char *end;
    long number = strtol(place + length, &end, 10);
    return *end == '\0' && number <= INT_MAX ? (int)number : -1;
}

int mt_monitor_open_source(const char *place, struct mt_monitor_source *source,
                           struct mt_error *error)
{
    struct mt_host_os os;
    int index = number_after(place, "gpu");
    int pid = number_after(place, "pid:");
    if (index >= 0)
        return mt_monitor_open_device(open_library, NULL, index, source, error);
    int is_group = strcmp(place, "cgroup") == 0;
    if (pid <= 0 && !is_group && strcmp(place, "host") != 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "no place is called '%.60s'; use host, cgroup, pid:4711, or gpu0 and so on",
                       place);
    mt_host_os_init(&os);
    if (pid > 0)
        return mt_monitor_open_program(&os, pid, source, error);
    return mt_monitor_open_host(&os, 0, is_group, source, error);
}
