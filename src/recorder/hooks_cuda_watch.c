/* SPDX-License-Identifier: MIT */
/* The most that the driver said was used of a device, for those in the process that measure a call.
 * They ask by `memtally_hook_device_…`; each has a peak of its own. A forked child has none. */
#include <string.h>

#include "base/gpu_uuid.h"
#include "recorder/cuda.h"
#include "recorder/real.h"

#define HOOK(result, name, parameters)
#define HOOK_GGML(result, name, parameters)
#define HOOK_JUMP(name)
#define HOOK_OWN(result, name, parameters) EXPORTED result name parameters;
#include "recorder/hooks.def"

enum { FREE = 0, TAKEN = 1, READY = 2 };

static int is_ready(const struct device_watch *watch)
{
    return __atomic_load_n(&watch->state, __ATOMIC_ACQUIRE) == READY;
}

void cuda_watch_used(int device, uint64_t used_bytes)
{
    struct process *process = memtally_recorder.process;
    uint8_t uuid[MT_GPU_UUID_RAW_BYTES];
    char text[MT_GPU_UUID_TEXT_BYTES];
    if (!process || !__atomic_load_n(&process->n_device_watches, __ATOMIC_ACQUIRE) ||
        !memtally_real.cuda.cuDeviceGetUuid_v2 ||
        memtally_real.cuda.cuDeviceGetUuid_v2(uuid, device) != 0)
        return;
    mt_format_gpu_uuid(uuid, text);
    for (unsigned i = 0; i < DEVICE_WATCHES; i++) {
        struct device_watch *watch = &process->device_watches[i];
        if (is_ready(watch) && strcmp(watch->uuid, text) == 0)
            cuda_raise(&watch->peak_bytes, used_bytes);
    }
}

int memtally_hook_device_watch(const char *uuid)
{
    struct process *process = memtally_recorder.process;
    size_t length = strlen(uuid) + 1;
    if (!process || length > sizeof process->device_watches[0].uuid)
        return -1;
    for (int i = 0; i < (int)DEVICE_WATCHES; i++) {
        struct device_watch *watch = &process->device_watches[i];
        uint32_t unused = FREE;
        if (!__atomic_compare_exchange_n(&watch->state, &unused, TAKEN, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        memcpy(watch->uuid, uuid, length);
        watch->peak_bytes = 0;
        __atomic_store_n(&watch->state, READY, __ATOMIC_RELEASE);
        __atomic_fetch_add(&process->n_device_watches, 1, __ATOMIC_RELEASE);
        return i;
    }
    return -1;
}

static struct device_watch *watch_of(int number)
{
    struct process *process = memtally_recorder.process;
    if (!process || number < 0 || number >= (int)DEVICE_WATCHES)
        return NULL;
    struct device_watch *watch = &process->device_watches[number];
    return is_ready(watch) ? watch : NULL;
}

uint64_t memtally_hook_device_peak(int number)
{
    struct device_watch *watch = watch_of(number);
    return watch ? __atomic_exchange_n(&watch->peak_bytes, 0, __ATOMIC_RELAXED) : 0;
}

void memtally_hook_device_unwatch(int number)
{
    struct device_watch *watch = watch_of(number);
    if (!watch)
        return;
    __atomic_fetch_sub(&memtally_recorder.process->n_device_watches, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&watch->state, FREE, __ATOMIC_RELEASE);
}
