/* SPDX-License-Identifier: MIT */
/* A libnvidia-ml.so.1 with two devices, so that the way through the loader can be tested. Memory in
 * use on device 1 is what the test says by setting fake_nvml_used_bytes; device 0 never answers. */
#include <memtally/measure.h>

#include "device/nvml.h"

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, GPU_IS_LOST = 15 };

__attribute__((visibility("default"))) unsigned long long fake_nvml_used_bytes = 7ull << 30;
__attribute__((visibility("default"))) unsigned fake_nvml_n_reads;
__attribute__((visibility("default"))) int fake_nvml_n_open;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetMemoryInfo(void *device, struct mt_nvml_memory *memory);

static char handles[2];

int nvmlInit_v2(void)
{
    __atomic_fetch_add(&fake_nvml_n_open, 1, __ATOMIC_RELAXED);
    return SUCCESS;
}

int nvmlShutdown(void)
{
    __atomic_fetch_sub(&fake_nvml_n_open, 1, __ATOMIC_RELAXED);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    if (index >= 2)
        return INVALID_ARGUMENT;
    *device = &handles[index];
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, struct mt_nvml_memory *memory)
{
    if (device == &handles[0])
        return GPU_IS_LOST;
    memory->total_bytes = 24ull << 30;
    memory->used_bytes = __atomic_load_n(&fake_nvml_used_bytes, __ATOMIC_RELAXED);
    memory->free_bytes = memory->total_bytes - memory->used_bytes;
    __atomic_fetch_add(&fake_nvml_n_reads, 1, __ATOMIC_RELAXED);
    return SUCCESS;
}
