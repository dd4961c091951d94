/* SPDX-License-Identifier: MIT */
/* A libcuda.so.1 of one device with the functions that no rehearsal has: arrays, multicast objects,
 * external memory, an imported pointer. It gives out numbers, and takes what the test says:
 * fake_used is what cuMemGetInfo() answers. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
#define TAKES(name, parameters)                                                                    \
    PUBLIC int name parameters;                                                                    \
    PUBLIC int name parameters                                                                     \
    {                                                                                              \
        return 0;                                                                                  \
    }
#define GIVES(name, parameters)                                                                    \
    PUBLIC int name parameters;                                                                    \
    PUBLIC int name parameters                                                                     \
    {                                                                                              \
        *made = next += 0x1000000;                                                                 \
        return 0;                                                                                  \
    }

static uint64_t next = 0x7000000000;
static uint64_t fake_used = (uint64_t)100 << 20;

GIVES(cuMemAlloc_v2, (uint64_t * made, size_t size))
GIVES(cuMemCreate, (uint64_t * made, size_t size, const void *properties, uint64_t flags))
GIVES(cuArrayCreate_v2, (uint64_t * made, const void *form))
GIVES(cuArray3DCreate_v2, (uint64_t * made, const void *form))
GIVES(cuMipmappedArrayCreate, (uint64_t * made, const void *form, unsigned levels))
GIVES(cuMulticastCreate, (uint64_t * made, const void *properties))
GIVES(cuImportExternalMemory, (uint64_t * made, const void *handle))
GIVES(cuExternalMemoryGetMappedBuffer, (uint64_t * made, void *memory, const void *buffer))
GIVES(cuMemPoolImportPointer, (uint64_t * made, void *pool, void *data))
TAKES(cuMemFree_v2, (uint64_t address))
TAKES(cuMemRelease, (uint64_t handle))
TAKES(cuMemMap, (uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t flags))
TAKES(cuMemUnmap, (uint64_t address, size_t size))
TAKES(cuArrayDestroy, (void *array))
TAKES(cuMipmappedArrayDestroy, (void *array))
TAKES(cuMulticastAddDevice, (uint64_t handle, int device))
TAKES(cuMulticastBindMem,
      (uint64_t handle, size_t offset, uint64_t memory, size_t from, size_t size, uint64_t flags))
TAKES(cuMulticastUnbind, (uint64_t handle, int device, size_t offset, size_t size))
TAKES(cuDestroyExternalMemory, (void *memory))
TAKES(cuGraphInstantiate_v2, (void **exec, void *graph, void **node, char *log, size_t size))
TAKES(cuDeviceGetUuid_v2, (uint8_t uuid[16], int device))

PUBLIC int cuCtxGetDevice(int *device);
PUBLIC int cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

/* What a program has it do meanwhile; NULL: nothing. */
PUBLIC extern void (*fake_current)(void);
PUBLIC void (*fake_current)(void);

PUBLIC int cuCtxGetCurrent(void **context);
PUBLIC int cuCtxGetCurrent(void **context)
{
    void (*meanwhile)(void) = fake_current;
    *context = NULL;
    if (meanwhile)
        meanwhile();
    return 0;
}

PUBLIC int cuDeviceGetName(char *name, int length, int device);
PUBLIC int cuDeviceGetName(char *name, int length, int device)
{
    (void)device;
    strncpy(name, "Fake", (size_t)length);
    return 0;
}

PUBLIC int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
PUBLIC int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = (size_t)8 << 30;
    *free_bytes = *total_bytes - fake_used;
    return 0;
}

/* The first start of a graph takes 12 MiB, of which 8 are for its nodes' memory. */
static uint64_t reserved;

PUBLIC int cuGraphLaunch(void *exec, void *stream);
PUBLIC int cuGraphLaunch(void *exec, void *stream)
{
    (void)exec, (void)stream;
    fake_used += reserved ? 0 : 12 << 20;
    reserved = 8 << 20;
    return 0;
}

PUBLIC int cuDeviceGetGraphMemAttribute(int device, int attribute, uint64_t *value);
PUBLIC int cuDeviceGetGraphMemAttribute(int device, int attribute, uint64_t *value)
{
    (void)device;
    *value = attribute == 2 ? reserved : 0;
    return 0;
}
