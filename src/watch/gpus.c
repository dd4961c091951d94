/* SPDX-License-Identifier: MIT */
/* What others than the processes of a tree use of NVIDIA's devices, by the driver's own list of
 * processes, and what the tree itself holds where it was attached to.
 *
 * It is asked from outside, since its library opens descriptors, and only once a process has loaded
 * CUDA's driver. In a container the list may name processes by numbers of the machine's: what is
 * none of the tree's is left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/units.h>

#include "base/ticks.h"
#include "watch/watch.h"

#define EVERY_NS    MT_WATCH_GPUS_EVERY_NS
#define SELDOM_NS   2000000000u /* where no process has loaded the driver */
#define MOST_OF_NS  50u         /* it may take a 50th of the time */
#define DRIVER_FILE "/libcuda.so"

static int open_library(void *context, struct mt_nvml *nvml, struct mt_error *error)
{
    (void)context;
    return mt_nvml_open_library(nvml, error);
}

/* The list has processes too whose mappings may not be read. */
static int has_driver(const struct mt_run *run)
{
    char byte;
    return run->host.read_file(run->host.context, "/proc/driver/nvidia/version", &byte, 1) > 0;
}

static int find_users(struct mt_run *run)
{
    int found = 0;
    for (size_t i = 0; i < run->n_processes; i++) {
        struct watched *process = &run->processes[i];
        char path[48];
        snprintf(path, sizeof path, "/proc/%d/maps", (int)process->reader);
        if (!process->has_cuda) {
            int has = mt_watch_text_has(run, path, DRIVER_FILE);
            process->has_cuda = has > 0 || (has < 0 && run->is_attached && has_driver(run));
        }
        found |= process->has_cuda;
    }
    return found;
}

static void describe(struct mt_run *run, unsigned number)
{
    struct mt_watch_gpus *gpus = &run->gpus;
    struct mt_watch_seen *seen = &gpus->seen[number];
    struct mt_nvml_memory memory = {0};
    char name[MT_NVML_UUID_BYTES] = "NVIDIA";
    if (gpus->nvml.device_name)
        (void)gpus->nvml.device_name(gpus->device[number], name, sizeof name);
    seen->uuid = gpus->uuid[number];
    seen->name = mt_write_string(&run->writer, mt_monotonic_ns(), name, strlen(name));
    seen->total_bytes = gpus->nvml.memory_info(gpus->device[number], &memory) == 0
                            ? memory.total_bytes
                            : MT_UNKNOWN;
}

static int open_devices(struct mt_run *run)
{
    struct mt_watch_gpus *gpus = &run->gpus;
    char uuid[MT_NVML_UUID_BYTES];
    unsigned n = 0;
    gpus->processes = malloc(MT_NVML_PROCESSES_MAX * sizeof *gpus->processes);
    if (!gpus->processes || mt_nvml_start(&gpus->nvml, open_library, NULL, NULL) < 0)
        return 0;
    gpus->is_open = 1;
    if (!gpus->nvml.device_uuid || !gpus->nvml.memory_info_2 || gpus->nvml.device_count(&n) != 0)
        return 0;
    for (unsigned i = 0; i < n && gpus->n < MT_WATCH_GPUS; i++) {
        void *device;
        if (gpus->nvml.device_by_index(i, &device) != 0 ||
            gpus->nvml.device_uuid(device, uuid, sizeof uuid) != 0)
            continue;
        gpus->device[gpus->n] = device;
        gpus->uuid[gpus->n] = mt_write_string(&run->writer, mt_monotonic_ns(), uuid, strlen(uuid));
        if (run->is_attached)
            describe(run, gpus->n);
        gpus->n++;
    }
    return gpus->n > 0;
}

/* What the list says of the tree's processes; 0 where it has none of them, or does not say how
 * much, or cannot be had. */
static uint64_t share_of_tree(const struct mt_run *run, void *device)
{
    const struct mt_watch_gpus *gpus = &run->gpus;
    unsigned n = MT_NVML_PROCESSES_MAX;
    uint64_t sum = 0;
    if (mt_nvml_processes(&gpus->nvml, device, gpus->processes, &n, NULL) < 0)
        return 0;
    for (unsigned i = 0; i < n; i++)
        for (size_t j = 0; j < run->n_processes; j++)
            if (gpus->processes[i].pid == (unsigned)run->processes[j].seen.pid) {
                if (gpus->processes[i].used_bytes == UINT64_MAX)
                    return 0;
                sum += gpus->processes[i].used_bytes;
            }
    return sum;
}

/* Both figures must be of one moment: the tree's is the same before and after. */
static void look_at_device(struct mt_run *run, unsigned number)
{
    struct mt_watch_gpus *gpus = &run->gpus;
    void *device = gpus->device[number];
    struct mt_nvml_memory_2 memory = {.version = MT_NVML_MEMORY_2};
    uint64_t share = share_of_tree(run, device);
    uint64_t ns = mt_monotonic_ns();
    if (run->is_attached)
        mt_watch_write_seen(run, &gpus->seen[number], share);
    if (!share || gpus->nvml.memory_info_2(device, &memory) != 0 ||
        share_of_tree(run, device) != share || memory.used_bytes < share)
        return;
    uint64_t others = memory.used_bytes - share;
    uint64_t fields[] = {gpus->uuid[number], others};
    if (gpus->others[number] == others + 1)
        return;
    gpus->others[number] = others + 1;
    mt_write_event(&run->writer, MT_EVENT_DEVICE_OTHERS, ns, fields, 2);
}

void mt_watch_gpus(struct mt_run *run, uint64_t now_ns)
{
    struct mt_watch_gpus *gpus = &run->gpus;
    uint64_t cpu_ns = mt_thread_cpu_ns();
    int is_drm_used = run->is_attached && mt_watch_drm(run);
    int is_used = !gpus->is_refused && find_users(run);
    if (is_used && !gpus->is_open) {
        gpus->is_refused = !open_devices(run);
        cpu_ns = mt_thread_cpu_ns(); /* that is done once, and takes as long as a hundred looks */
    }
    for (unsigned i = 0; is_used && !gpus->is_refused && i < gpus->n; i++)
        look_at_device(run, i);
    uint64_t longer_ns = gpus->apart_ns + gpus->apart_ns / 2;
    uint64_t cost_ns = run->is_attached ? (mt_thread_cpu_ns() - cpu_ns) * MT_WATCH_GPUS_REST_TIMES
                                        : (mt_monotonic_ns() - now_ns) * MOST_OF_NS;
    is_used |= is_drm_used;
    gpus->apart_ns = is_used ? EVERY_NS : longer_ns < SELDOM_NS ? longer_ns : SELDOM_NS;
    if (gpus->apart_ns < EVERY_NS)
        gpus->apart_ns = EVERY_NS;
    gpus->next_ns = gpus->is_refused && !run->is_attached
                        ? UINT64_MAX
                        : now_ns + (cost_ns > gpus->apart_ns ? cost_ns : gpus->apart_ns);
}

void mt_watch_gpus_finish(struct mt_run *run)
{
    if (run->gpus.is_open)
        mt_nvml_stop(&run->gpus.nvml);
    free(run->gpus.processes);
}
