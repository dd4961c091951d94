/* SPDX-License-Identifier: MIT */
/* libnvidia-ml.so.1 of two devices that are not there, for tests of what memtally makes of real
 * ones. NVML_USED has the bytes that are used of each, "1000,0"; NVML_USER a file with the id of
 * the process that uses the first device and how much it uses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1ull << 30)

struct memory {
    unsigned long long total, free, used;
};

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static int devices[2];

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
int nvmlDeviceGetUUID(const int *device, char *text, unsigned size);
int nvmlDeviceGetMemoryInfo(const int *device, struct memory *memory);
int nvmlDeviceGetComputeRunningProcesses_v3(const int *device, unsigned *n,
                                            struct process *process);

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
    *device = &devices[i];
    return i < 2 ? 0 : 2;
}

int nvmlDeviceGetUUID(const int *device, char *text, unsigned size)
{
    snprintf(text, size, "GPU-%c", device == devices ? 'a' : 'b');
    return 0;
}

int nvmlDeviceGetMemoryInfo(const int *device, struct memory *memory)
{
    const char *used = getenv("NVML_USED");
    if (used && device != devices)
        used = strchr(used, ',') + 1;
    memory->total = 8 * GIB;
    memory->used = used ? strtoull(used, NULL, 10) : 0;
    memory->free = memory->total - memory->used;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const int *device, unsigned *n, struct process *process)
{
    const char *path = getenv("NVML_USER");
    FILE *file = path && device == devices ? fopen(path, "r") : NULL;
    *n = 0;
    if (file && fscanf(file, "%u %llu", &process->pid, &process->used) == 2)
        *n = 1;
    if (file)
        fclose(file);
    return 0;
}
