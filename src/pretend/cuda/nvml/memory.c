/* SPDX-License-Identifier: MIT */
/* What is taken of a device, and by whom: the account knows it over all processes. */
#include <stdlib.h>
#include <string.h>

#include "nvml.h"

#define NOT_PARTED 0xffffffffu /* of a device that is not divided */
#define PROCESSES  1024        /* more than these are not told */

struct memory {
    unsigned long long total, free, used;
};
struct memory_2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct process_1 {
    unsigned pid;
    unsigned long long bytes;
};
struct process_2 {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
struct process_detail {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_bytes;
};
struct process_details {
    unsigned version, mode, n;
    struct process_detail *process;
};

int nvmlDeviceGetMemoryInfo(const struct nvml_device *device, struct memory *memory);
int nvmlDeviceGetMemoryInfo_v2(const struct nvml_device *device, struct memory_2 *memory);
int nvmlDeviceGetComputeRunningProcesses(const struct nvml_device *device, unsigned *n,
                                         struct process_1 *process);
int nvmlDeviceGetComputeRunningProcesses_v2(const struct nvml_device *device, unsigned *n,
                                            struct process_2 *process);
int nvmlDeviceGetComputeRunningProcesses_v3(const struct nvml_device *device, unsigned *n,
                                            struct process_2 *process);
int nvmlDeviceGetRunningProcessDetailList(const struct nvml_device *device,
                                          struct process_details *details);

PRETEND_CALL int nvmlDeviceGetMemoryInfo(const struct nvml_device *device, struct memory *memory)
{
    uint32_t place;
    int result = nvml_ask(device, memory, &place);
    if (result != NVML_SUCCESS)
        return result;
    memory->total = nvml_account_device(place)->total_bytes;
    memory->free = pretend_cuda_free_bytes(place);
    memory->used = memory->total - memory->free;
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlDeviceGetMemoryInfo_v2(const struct nvml_device *device,
                                            struct memory_2 *memory)
{
    struct memory known;
    int result = nvmlDeviceGetMemoryInfo(device, &known);
    if (result != NVML_SUCCESS)
        return result;
    if (!memory)
        return NVML_INVALID_ARGUMENT;
    if (memory->version != (sizeof *memory | 2u << 24))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    memory->total = known.total;
    memory->reserved = 0;
    memory->free = known.free;
    memory->used = known.used;
    return NVML_SUCCESS;
}

struct shares {
    uint32_t n;
    struct {
        uint32_t pid;
        uint64_t bytes;
    } of[PROCESSES];
};

static void add_event(struct shares *shares, const struct mt_account_event *event, uint32_t place)
{
    uint32_t i = 0;
    int is_here = event->place == place &&
                  (event->kind == MT_ACCOUNT_ALLOC || event->kind == MT_ACCOUNT_FREE);
    while (i < shares->n && shares->of[i].pid != event->pid)
        i++;
    if (event->kind == MT_ACCOUNT_END && i < shares->n)
        shares->of[i] = shares->of[--shares->n];
    if (!is_here || i == PROCESSES)
        return;
    if (i == shares->n) {
        shares->of[i].pid = event->pid;
        shares->of[i].bytes = 0;
        shares->n++;
    }
    if (event->kind == MT_ACCOUNT_ALLOC)
        shares->of[i].bytes += event->bytes;
    else
        shares->of[i].bytes -=
            event->bytes < shares->of[i].bytes ? event->bytes : shares->of[i].bytes;
}

/* The processes that hold memory of a device, each with its share; the caller frees them. */
static struct shares *count_shares(uint32_t place)
{
    const struct mt_account *account = pretend_cuda_whole();
    uint64_t n = __atomic_load_n(&account->n_events, __ATOMIC_ACQUIRE);
    struct shares *shares = calloc(1, sizeof *shares);
    for (uint64_t i = 0; shares && i < n && i < MT_ACCOUNT_EVENTS_MAX; i++)
        if (__atomic_load_n(&account->event[i].kind, __ATOMIC_ACQUIRE) != MT_ACCOUNT_NONE)
            add_event(shares, &account->event[i], place);
    for (uint32_t i = shares ? shares->n : 0; i-- > 0;)
        if (shares->of[i].bytes == 0)
            shares->of[i] = shares->of[--shares->n];
    return shares;
}

/* Writes to `process`, as many as *n, by a version of the structure; NVML_INSUFFICIENT_SIZE says
 * in *n how many there are. */
static int list(const struct nvml_device *device, unsigned *n, void *process, size_t each)
{
    struct process_detail told = {.gpu_instance = NOT_PARTED, .compute_instance = NOT_PARTED};
    struct shares *shares;
    uint32_t place;
    unsigned room;
    int result = nvml_find(device, &place);
    if (result != NVML_SUCCESS)
        return result;
    if (!n || (*n && !process))
        return NVML_INVALID_ARGUMENT;
    shares = count_shares(place);
    room = *n;
    *n = shares ? shares->n : 0;
    for (uint32_t i = 0; shares && i < shares->n && shares->n <= room; i++) {
        told.pid = shares->of[i].pid;
        told.bytes = shares->of[i].bytes;
        memcpy((char *)process + i * each, &told, each);
    }
    free(shares);
    return *n > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

PRETEND_CALL int nvmlDeviceGetComputeRunningProcesses(const struct nvml_device *device, unsigned *n,
                                                      struct process_1 *process)
{
    return list(device, n, process, sizeof *process);
}

PRETEND_CALL int nvmlDeviceGetComputeRunningProcesses_v2(const struct nvml_device *device,
                                                         unsigned *n, struct process_2 *process)
{
    return list(device, n, process, sizeof *process);
}

PRETEND_CALL int nvmlDeviceGetComputeRunningProcesses_v3(const struct nvml_device *device,
                                                         unsigned *n, struct process_2 *process)
{
    return list(device, n, process, sizeof *process);
}

PRETEND_CALL int nvmlDeviceGetRunningProcessDetailList(const struct nvml_device *device,
                                                       struct process_details *details)
{
    if (!details)
        return NVML_INVALID_ARGUMENT;
    if (details->mode != 0) { /* there are none of graphics or of MPS */
        details->n = 0;
        return NVML_SUCCESS;
    }
    return list(device, &details->n, details->process, sizeof *details->process);
}

#define NO_PROCESSES(name)                                                                         \
    int name(const struct nvml_device *device, unsigned *n, void *process);                        \
    PRETEND_CALL int name(const struct nvml_device *device, unsigned *n, void *process)            \
    {                                                                                              \
        uint32_t place;                                                                            \
        int result = nvml_find(device, &place);                                                    \
        (void)process;                                                                             \
        if (result == NVML_SUCCESS && !n)                                                          \
            return NVML_INVALID_ARGUMENT;                                                          \
        if (result == NVML_SUCCESS)                                                                \
            *n = 0;                                                                                \
        return result;                                                                             \
    }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)
