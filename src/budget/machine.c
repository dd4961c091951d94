/* SPDX-License-Identifier: MIT */
/* What this machine has, as places of a budget. Knows no reservation. */
#include <memtally/host.h>
#include <memtally/job.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/nvml.h"

static int open_library(void *context, struct mt_nvml *nvml, struct mt_error *error)
{
    (void)context;
    return mt_nvml_open_library(nvml, error);
}

static void add(struct mt_job_machine *machine, const char *name, uint64_t capacity_bytes,
                uint64_t free_bytes)
{
    char *own = machine->names[machine->n];
    snprintf(own, sizeof machine->names[0], "%s", name);
    machine->places[machine->n++] = (struct mt_budget_place){
        .name = own, .capacity_bytes = capacity_bytes, .free_bytes = free_bytes};
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A limit that is above what the machine has is none. */
static int look_at_host(struct mt_job_machine *machine, struct mt_error *error)
{
    struct mt_host_sample sample;
    int status = mt_host_sample_take(0, &sample, error);
    if (status < 0)
        return status;
    uint64_t capacity = least(sample.memory_total_bytes, sample.cgroup_limit_bytes);
    uint64_t available = sample.memory_available_bytes;
    if (sample.cgroup_limit_bytes != MT_UNKNOWN && sample.cgroup_working_set_bytes != MT_UNKNOWN) {
        uint64_t used = least(sample.cgroup_working_set_bytes, sample.cgroup_limit_bytes);
        available = least(available, sample.cgroup_limit_bytes - used);
    }
    add(machine, "host", capacity, available);
    return 0;
}

/* Entries are numbers or the beginnings of UUIDs, and the first that is neither ends the list. */
static int is_visible(const char *visible, unsigned index, const char *uuid)
{
    while (visible) {
        size_t length = strcspn(visible, ",");
        char *end;
        unsigned long number = strtoul(visible, &end, 10);
        int is_number = length > 0 && end == visible + length;
        int is_uuid = length > 4 && strncmp(visible, "GPU-", 4) == 0;
        if (!is_number && !is_uuid)
            return 0;
        if (is_number ? number == index : strncmp(visible, uuid, length) == 0)
            return 1;
        if (!visible[length])
            return 0;
        visible += length + 1;
    }
    return 1;
}

static void look_at_devices(struct mt_job_machine *machine, const char *visible)
{
    struct mt_nvml nvml;
    unsigned n = 0;
    if (mt_nvml_start(&nvml, open_library, NULL, NULL) < 0)
        return;
    if (nvml.device_count(&n) != 0)
        n = 0;
    for (unsigned i = 0; i < n && machine->n < MT_JOB_PLACES; i++) {
        char name[16];
        char uuid[MT_NVML_UUID_BYTES] = "";
        struct mt_nvml_memory memory;
        void *device;
        if (nvml.device_by_index(i, &device) != 0 || nvml.memory_info(device, &memory) != 0)
            continue;
        if (nvml.device_uuid && nvml.device_uuid(device, uuid, sizeof uuid) != 0)
            *uuid = '\0';
        snprintf(name, sizeof name, "gpu%u", i);
        if (is_visible(visible, i, uuid))
            add(machine, name, memory.total_bytes, memory.free_bytes);
    }
    mt_nvml_stop(&nvml);
}

int mt_job_look(struct mt_job_machine *machine, const char *visible, struct mt_error *error)
{
    machine->n = 0;
    int status = look_at_host(machine, error);
    if (status == 0)
        look_at_devices(machine, visible);
    return status;
}
