/* SPDX-License-Identifier: MIT */
/* One device: the driver's words for it, and the recorder's for what it was at between two looks.
 *
 * The recorder knows what all use together. Less what others used at the last look, that is what
 * this process used. */
#include "measure/device.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "base/out_of_memory.h"

static int open_nvml_device(struct mt_measure_device *device,
                            const struct mt_measure_options *options, struct mt_error *error)
{
    const struct mt_measure_os *os = device->os;
    char uuid[MT_GPU_UUID_TEXT_BYTES];
    const char *named = options->device_uuid;
    if (!named && options->device_count == MT_MEASURE_AS_CUDA) {
        int result = os->cuda_uuid(os->context, options->device_index, uuid, error);
        if (result != MT_OK)
            return result;
        named = uuid;
    }
    if (named)
        return mt_nvml_device_open_uuid(&device->nvml, os->open_nvml, os->context, named, error);
    return mt_nvml_device_open(&device->nvml, os->open_nvml, os->context, options->device_index,
                               error);
}

int mt_measure_device_open(struct mt_measure_device *device, const struct mt_measure_os *os,
                           const struct mt_measure_options *options, struct mt_error *error)
{
    struct mt_measure_device opened = {
        .os = os, .watch = MT_MEASURE_NO_WATCH, .others_bytes = MT_UNKNOWN};
    int result = open_nvml_device(&opened, options, error);
    if (result != MT_OK)
        return result;
    const struct mt_nvml *nvml = &opened.nvml.nvml;
    if (!nvml->device_uuid ||
        nvml->device_uuid(opened.nvml.device, opened.uuid, sizeof opened.uuid) != 0)
        opened.uuid[0] = '\0';
    opened.processes = malloc(MT_NVML_PROCESSES_MAX * sizeof *opened.processes);
    if (!opened.processes) {
        mt_nvml_device_close(&opened.nvml);
        return mt_out_of_memory(error);
    }
    if (opened.uuid[0])
        opened.watch = os->watch_device(os->context, opened.uuid);
    *device = opened;
    return MT_OK;
}

/* What the driver's list says of this process: MT_UNKNOWN where it is not in it. */
static uint64_t own_bytes(const struct mt_measure_device *device)
{
    unsigned n = MT_NVML_PROCESSES_MAX;
    unsigned pid = device->os->pid(device->os->context);
    if (mt_nvml_processes(&device->nvml.nvml, device->nvml.device, device->processes, &n, NULL) !=
        MT_OK)
        return MT_UNKNOWN;
    for (unsigned i = 0; i < n; i++)
        if (device->processes[i].pid == pid)
            return device->processes[i].used_bytes; /* untold is MT_UNKNOWN, too */
    return MT_UNKNOWN;
}

/* What processes use together, without what the driver keeps back for itself, where it tells the
 * two apart. */
static uint64_t shared_out(const struct mt_measure_device *device, uint64_t used_bytes)
{
    struct mt_nvml_memory_2 memory = {.version = MT_NVML_MEMORY_2};
    const struct mt_nvml *nvml = &device->nvml.nvml;
    if (!nvml->memory_info_2 || nvml->memory_info_2(device->nvml.device, &memory) != 0)
        return used_bytes;
    return memory.used_bytes;
}

/* Both figures must be of one moment: our own is the same before and after. */
static void look_at_own(struct mt_measure_device *device, uint64_t caught_bytes,
                        struct mt_measure_use *use)
{
    uint64_t own = own_bytes(device);
    uint64_t shared = shared_out(device, use->used_bytes);
    if (own != MT_UNKNOWN && own_bytes(device) == own && shared >= own)
        device->others_bytes = shared - own;
    use->own_bytes = use->own_peak_bytes = own;
    if (own != MT_UNKNOWN && device->others_bytes != MT_UNKNOWN &&
        caught_bytes > device->others_bytes)
        use->own_peak_bytes = mt_measure_higher(own, caught_bytes - device->others_bytes);
}

int mt_measure_device_look(struct mt_measure_device *device, struct mt_measure_use *use,
                           struct mt_error *error)
{
    const struct mt_measure_os *os = device->os;
    struct mt_nvml_memory memory;
    uint64_t caught_bytes = 0;
    if (device->watch != MT_MEASURE_NO_WATCH)
        caught_bytes = os->watched_bytes(os->context, device->watch);
    int result = mt_nvml_device_memory(&device->nvml, &memory, error);
    if (result != MT_OK)
        return result;
    use->used_bytes = memory.used_bytes;
    use->peak_bytes = mt_measure_higher(memory.used_bytes, caught_bytes);
    look_at_own(device, caught_bytes, use);
    return MT_OK;
}

int mt_measure_device_capacity(const struct mt_measure_device *device, uint64_t *capacity_bytes,
                               struct mt_error *error)
{
    struct mt_nvml_memory memory;
    int result = mt_nvml_device_memory(&device->nvml, &memory, error);
    if (result == MT_OK)
        *capacity_bytes = memory.total_bytes;
    return result;
}

void mt_measure_device_close(struct mt_measure_device *device)
{
    if (device->watch != MT_MEASURE_NO_WATCH)
        device->os->unwatch_device(device->os->context, device->watch);
    mt_nvml_device_close(&device->nvml);
    free(device->processes);
}
