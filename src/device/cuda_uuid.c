/* SPDX-License-Identifier: MIT */
/* CUDA's numbers of devices by dlopen(). */
#include "device/cuda_uuid.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"

struct cuda {
    int (*init)(unsigned flags);
    int (*count)(int *count);
    int (*device)(int *device, int index);
    int (*uuid)(uint8_t *uuid, int device);
};

static int find(struct cuda *cuda, struct mt_error *error)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "no NVIDIA driver here: libcuda.so.1 cannot be opened");
    const struct {
        const char *name;
        void *function_pointer;
    } wanted[] = {{"cuInit", &cuda->init},
                  {"cuDeviceGetCount", &cuda->count},
                  {"cuDeviceGet", &cuda->device},
                  {"cuDeviceGetUuid", &cuda->uuid}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found)
            return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                           "libcuda.so.1 has no %s: the NVIDIA driver is too old; name the device "
                           "as NVML counts, or by its UUID",
                           wanted[i].name);
        memcpy(wanted[i].function_pointer, &found, sizeof found);
    }
    return MT_OK;
}

int mt_cuda_uuid(int index, char uuid[MT_GPU_UUID_TEXT_BYTES], struct mt_error *error)
{
    struct cuda cuda;
    uint8_t raw[MT_GPU_UUID_RAW_BYTES];
    int count = 0;
    int device;
    int result = find(&cuda, error);
    if (result != MT_OK)
        return result;
    int refused = cuda.init(0);
    if (!refused)
        refused = cuda.count(&count);
    if (refused)
        return mt_fail(error, MT_EIO, MT_NO_OFFSET,
                       "CUDA does not start (error %d); where this process was forked after it had "
                       "started CUDA, that is why",
                       refused);
    if (index >= count)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "no CUDA device %d: this process sees %d, counted from 0; "
                       "CUDA_VISIBLE_DEVICES says which",
                       index, count);
    refused = cuda.device(&device, index);
    if (!refused)
        refused = cuda.uuid(raw, device);
    if (refused)
        return mt_fail(error, MT_EIO, MT_NO_OFFSET,
                       "CUDA does not tell the UUID of device %d (error %d)", index, refused);
    mt_format_gpu_uuid(raw, uuid);
    return MT_OK;
}
