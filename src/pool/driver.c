/* SPDX-License-Identifier: MIT */
/* Finds CUDA's driver when it is asked for: nothing is linked against it. */
#include "pool/driver.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"

struct wanted {
    const char *name;
    void *function;
};

/* The first name that the library does not have, or NULL. */
static const char *find(void *library, const struct wanted *wanted, size_t n)
{
    const char *missing = NULL;
    for (size_t i = 0; i < n; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found && !missing)
            missing = wanted[i].name;
        memcpy(wanted[i].function, &found, sizeof found);
    }
    return missing;
}

int mt_cuda_driver_open(const char *name, struct mt_cuda_driver *driver, struct mt_error *error)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "no CUDA driver here: %s cannot be opened", name);
    const struct wanted wanted[] = {
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
        {"cuMemcpyDtoH_v2", &driver->copy_out},
        {"cuMemcpyHtoD_v2", &driver->copy_in},
        {"cuMemHostAlloc", &driver->host_alloc},
        {"cuMemFreeHost", &driver->host_free},
        {"cuStreamCreate", &driver->stream_create},
        {"cuStreamSynchronize", &driver->stream_wait},
        {"cuStreamDestroy_v2", &driver->stream_destroy},
    };
    const struct wanted newer[] = {
        {"cuMemPoolCreate", &driver->pool_create},
        {"cuMemPoolDestroy", &driver->pool_destroy},
        {"cuMemAllocFromPoolAsync", &driver->pool_alloc},
        {"cuMemFreeAsync", &driver->pool_free},
        {"cuMemPoolTrimTo", &driver->pool_trim},
    };
    const char *missing = find(library, wanted, sizeof wanted / sizeof wanted[0]);
    if (missing) {
        dlclose(library);
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%s has no %s: the CUDA driver is too old for a pool", name, missing);
    }
    if (find(library, newer, sizeof newer / sizeof newer[0]))
        driver->pool_create = NULL;
    return MT_OK;
}
