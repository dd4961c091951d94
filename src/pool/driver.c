/* SPDX-License-Identifier: MIT */
/* Finds CUDA's driver when it is asked for: nothing is linked against it. */
#include "pool/driver.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"

int mt_cuda_driver_open(const char *name, struct mt_cuda_driver *driver, struct mt_error *error)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "no CUDA driver here: %s cannot be opened", name);
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"cuInit", &driver->init},
        {"cuDeviceGet", &driver->device_get},
        {"cuDeviceTotalMem_v2", &driver->total_bytes},
        {"cuDevicePrimaryCtxRetain", &driver->context_retain},
        {"cuDevicePrimaryCtxRelease_v2", &driver->context_release},
        {"cuCtxPushCurrent_v2", &driver->context_push},
        {"cuCtxPopCurrent_v2", &driver->context_pop},
        {"cuMemGetAllocationGranularity", &driver->granularity},
        {"cuMemAddressReserve", &driver->reserve},
        {"cuMemAddressFree", &driver->unreserve},
        {"cuMemCreate", &driver->create},
        {"cuMemRelease", &driver->release},
        {"cuMemMap", &driver->map},
        {"cuMemUnmap", &driver->unmap},
        {"cuMemSetAccess", &driver->set_access},
        {"cuEventCreate", &driver->event_create},
        {"cuEventRecord", &driver->event_record},
        {"cuEventQuery", &driver->event_query},
        {"cuEventSynchronize", &driver->event_wait},
        {"cuEventDestroy_v2", &driver->event_destroy},
        {"cuThreadExchangeStreamCaptureMode", &driver->capture_mode},
        {"cuStreamIsCapturing", &driver->is_capturing},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found) {
            dlclose(library);
            return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                           "%s has no %s: the CUDA driver is too old for a pool", name,
                           wanted[i].name);
        }
        memcpy(wanted[i].function, &found, sizeof found);
    }
    return MT_OK;
}
