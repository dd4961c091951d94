/* SPDX-License-Identifier: MIT */
/* A program that takes memory in the ways that no rehearsal has, of the driver in fake_driver.c:
 * rare WORD... */
#include <stdint.h>
#include <string.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

struct array {
    size_t width, height;
    int format;
    unsigned channels;
};
struct array_3d {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
struct properties {
    int type, requested_handles, location_type, location_id;
    void *windows;
    unsigned char flags[8];
};

int cuMemCreate(uint64_t *handle, size_t size, const struct properties *properties, uint64_t flags);
int cuMemRelease(uint64_t handle);
int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t flags);
int cuMemUnmap(uint64_t address, size_t size);
int cuMemFree_v2(uint64_t address);
int cuArrayCreate_v2(void **array, const struct array *form);
int cuArray3DCreate_v2(void **array, const struct array_3d *form);
int cuMipmappedArrayCreate(void **array, const struct array_3d *form, unsigned levels);
int cuArrayDestroy(void *array);
int cuMulticastCreate(uint64_t *handle, const void *properties);
int cuMulticastAddDevice(uint64_t handle, int device);
int cuMulticastBindMem(uint64_t handle, size_t offset, uint64_t memory, size_t from, size_t size,
                       uint64_t flags);
int cuMulticastUnbind(uint64_t handle, int device, size_t offset, size_t size);
int cuImportExternalMemory(void **memory, const void *handle);
int cuExternalMemoryGetMappedBuffer(uint64_t *address, void *memory, const void *buffer);
int cuDestroyExternalMemory(void *memory);
int cuMemPoolImportPointer(uint64_t *address, void *pool, void *data);
int cuGraphLaunch(void *exec, void *stream);

enum { FLOAT = 0x20, UINT8 = 0x01, LAYERED = 1, SPARSE = 0x40 };

/* 16 MiB, destroyed; 1024 x 512 x 4 bytes; 64 x 64 x 16 x 8 bytes; 5 layers of 256 x 256 x 4 with
 * all levels; and one whose memory is given later. */
static void arrays(void)
{
    void *array;
    CHECK(cuArrayCreate_v2(&array, &(struct array){2048, 2048, FLOAT, 1}) == 0);
    CHECK(cuArrayDestroy(array) == 0);
    CHECK(cuArrayCreate_v2(&array, &(struct array){1024, 512, UINT8, 4}) == 0);
    CHECK(cuArray3DCreate_v2(&array, &(struct array_3d){64, 64, 16, FLOAT, 2, 0}) == 0);
    CHECK(cuMipmappedArrayCreate(&array, &(struct array_3d){256, 256, 5, UINT8, 4, LAYERED}, 9) ==
          0);
    CHECK(cuArray3DCreate_v2(&array, &(struct array_3d){4096, 4096, 0, FLOAT, 4, SPARSE}) == 0);
}

/* Memory that is also reached through a multicast object counts once, and goes with its own last
 * handle and mapping. */
static void multicast(void)
{
    const struct properties properties = {.type = 1, .location_type = 1};
    uint64_t memory, object;
    CHECK(cuMemCreate(&memory, 4 * MIB, &properties, 0) == 0);
    CHECK(cuMulticastCreate(&object, &properties) == 0 && cuMulticastAddDevice(object, 0) == 0);
    CHECK(cuMulticastBindMem(object, 0, memory, 0, 4 * MIB, 0) == 0);
    CHECK(cuMemMap(0x100000000, 4 * MIB, 0, memory, 0) == 0);
    CHECK(cuMemMap(0x200000000, 4 * MIB, 0, object, 0) == 0);
    CHECK(cuMemUnmap(0x200000000, 4 * MIB) == 0);
    CHECK(cuMulticastUnbind(object, 0, 0, 4 * MIB) == 0 && cuMemRelease(object) == 0);
    CHECK(cuMemRelease(memory) == 0 && cuMemUnmap(0x100000000, 4 * MIB) == 0);
}

/* Others made it, and it is theirs. */
static void external(void)
{
    void *memory;
    uint64_t address;
    CHECK(cuImportExternalMemory(&memory, NULL) == 0);
    CHECK(cuExternalMemoryGetMappedBuffer(&address, memory, NULL) == 0);
    CHECK(cuMemFree_v2(address) == 0 && cuDestroyExternalMemory(memory) == 0);
    CHECK(cuMemPoolImportPointer(&address, NULL, NULL) == 0);
}

static void graphs(void)
{
    for (int i = 0; i < 5; i++)
        CHECK(cuGraphLaunch((void *)0x5000, NULL) == 0);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "arrays") == 0)
            arrays();
        else if (strcmp(argv[i], "multicast") == 0)
            multicast();
        else if (strcmp(argv[i], "external") == 0)
            external();
        else if (strcmp(argv[i], "graphs") == 0)
            graphs();
    puts("done");
    return 0;
}
