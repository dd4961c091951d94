/* SPDX-License-Identifier: MIT */
/* NVML by dlopen(): find, count, read. Knows nothing of measuring. */
#include "device/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

/* Results of NVML that mean more to us than "failed". */
enum { NVML_NO_PERMISSION = 4, NVML_NOT_FOUND = 6, NVML_NO_DRIVER = 9 };

static int find(void *library, const char *name, void *function_pointer, struct mt_error *error)
{
    void *found = dlsym(library, name);
    if (!found)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "libnvidia-ml.so.1 has no %s: the NVIDIA driver is too old", name);
    memcpy(function_pointer, &found, sizeof found);
    return MT_OK;
}

static int find_all(struct mt_nvml *nvml, struct mt_error *error)
{
    const struct {
        const char *name;
        void *function_pointer;
    } wanted[] = {
        {"nvmlInit_v2", &nvml->init},
        {"nvmlShutdown", &nvml->shutdown},
        {"nvmlDeviceGetCount_v2", &nvml->device_count},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml->device_by_index},
        {"nvmlDeviceGetMemoryInfo", &nvml->memory_info},
    };
    int result = MT_OK;
    for (size_t i = 0; result == MT_OK && i < sizeof wanted / sizeof wanted[0]; i++)
        result = find(nvml->library, wanted[i].name, wanted[i].function_pointer, error);
    if (result == MT_OK) {
        find(nvml->library, "nvmlDeviceGetMemoryInfo_v2", &nvml->memory_info_2, NULL);
        find(nvml->library, "nvmlDeviceGetUUID", &nvml->device_uuid, NULL);
        find(nvml->library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes, NULL);
    }
    return result;
}

int mt_nvml_open_library(struct mt_nvml *nvml, struct mt_error *error)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "no NVIDIA driver here: libnvidia-ml.so.1 cannot be opened");
    struct mt_nvml found = {.library = library};
    int result = find_all(&found, error);
    if (result == MT_OK)
        *nvml = found;
    else
        dlclose(library);
    return result;
}

static void close_library(struct mt_nvml *nvml)
{
    if (nvml->library)
        dlclose(nvml->library);
}

static int fail_nvml(struct mt_error *error, int nvml_result, const char *what)
{
    int code = MT_EIO;
    if (nvml_result == NVML_NO_PERMISSION)
        code = MT_EPERM;
    else if (nvml_result == NVML_NOT_FOUND || nvml_result == NVML_NO_DRIVER)
        code = MT_ENOTFOUND;
    return mt_fail(error, code, MT_NO_OFFSET, "%s failed with NVML result %d; see nvidia-smi", what,
                   nvml_result);
}

static int find_device(struct mt_nvml_device *device, int index, struct mt_error *error)
{
    unsigned count = 0;
    int failed = device->nvml.device_count(&count);
    if (failed)
        return fail_nvml(error, failed, "counting the NVIDIA devices");
    if ((unsigned)index >= count)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "no NVIDIA device %d: this machine has %u, counted from 0", index, count);
    failed = device->nvml.device_by_index((unsigned)index, &device->device);
    return failed ? fail_nvml(error, failed, "opening the NVIDIA device") : MT_OK;
}

int mt_nvml_start(struct mt_nvml *nvml, mt_nvml_open open, void *context, struct mt_error *error)
{
    struct mt_nvml opened;
    int result = open(context, &opened, error);
    if (result != MT_OK)
        return result;
    int failed = opened.init();
    if (failed) {
        close_library(&opened);
        return fail_nvml(error, failed, "starting NVML");
    }
    *nvml = opened;
    return MT_OK;
}

void mt_nvml_stop(struct mt_nvml *nvml)
{
    nvml->shutdown();
    close_library(nvml);
}

int mt_nvml_processes(const struct mt_nvml *nvml, void *device, struct mt_nvml_process *process,
                      unsigned *n, struct mt_error *error)
{
    enum { NVML_NOT_SUPPORTED = 3, NVML_INSUFFICIENT_SIZE = 7 };
    if (!nvml->processes)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "libnvidia-ml.so.1 does not list processes: the NVIDIA driver is too old");
    int failed = nvml->processes(device, n, process);
    if (failed == NVML_INSUFFICIENT_SIZE)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "more than %u processes use the device",
                       MT_NVML_PROCESSES_MAX);
    if (failed == NVML_NOT_SUPPORTED)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "the NVIDIA device does not say which processes use it");
    return failed ? fail_nvml(error, failed, "listing the NVIDIA device's processes") : MT_OK;
}

static int find_uuid(struct mt_nvml_device *device, const char *uuid, struct mt_error *error)
{
    char text[MT_NVML_UUID_BYTES];
    unsigned count = 0;
    if (!device->nvml.device_uuid)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "libnvidia-ml.so.1 tells no UUIDs: the NVIDIA driver is too old; name the "
                       "device by its index");
    int failed = device->nvml.device_count(&count);
    if (failed)
        return fail_nvml(error, failed, "counting the NVIDIA devices");
    for (unsigned i = 0; i < count; i++)
        if (device->nvml.device_by_index(i, &device->device) == 0 &&
            device->nvml.device_uuid(device->device, text, sizeof text) == 0 &&
            strcasecmp(text, uuid) == 0)
            return MT_OK;
    return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                   "no NVIDIA device has the UUID %.100s; nvidia-smi -L lists them", uuid);
}

/* By UUID where one is given. */
static int open_device(struct mt_nvml_device *device, mt_nvml_open open, void *context,
                       const char *uuid, int index, struct mt_error *error)
{
    struct mt_nvml_device opened = {.device = NULL};
    int result = mt_nvml_start(&opened.nvml, open, context, error);
    if (result != MT_OK)
        return result;
    result = uuid ? find_uuid(&opened, uuid, error) : find_device(&opened, index, error);
    if (result == MT_OK)
        *device = opened;
    else
        mt_nvml_device_close(&opened);
    return result;
}

int mt_nvml_device_open(struct mt_nvml_device *device, mt_nvml_open open, void *context, int index,
                        struct mt_error *error)
{
    return open_device(device, open, context, NULL, index, error);
}

int mt_nvml_device_open_uuid(struct mt_nvml_device *device, mt_nvml_open open, void *context,
                             const char *uuid, struct mt_error *error)
{
    return open_device(device, open, context, uuid, 0, error);
}

int mt_nvml_device_memory(const struct mt_nvml_device *device, struct mt_nvml_memory *memory,
                          struct mt_error *error)
{
    struct mt_nvml_memory read = {0};
    int failed = device->nvml.memory_info(device->device, &read);
    if (failed)
        return fail_nvml(error, failed, "reading the NVIDIA device's memory");
    *memory = read;
    return MT_OK;
}

void mt_nvml_device_close(struct mt_nvml_device *device)
{
    mt_nvml_stop(&device->nvml);
}
