/* SPDX-License-Identifier: MIT */
/* The pretended NVML from its start to its end, and the devices that it gives out: all of the
 * account, whatever CUDA_VISIBLE_DEVICES says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "nvml.h"
#include "pretend/cuda/place.h"

static struct nvml_device devices[MT_ACCOUNT_DEVICES_MAX];
static int n_started;

int nvmlInit_v2(void);
int nvmlInit(void);
int nvmlInitWithFlags(unsigned flags);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetCount(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **device);
int nvmlDeviceGetHandleByIndex(unsigned index, struct nvml_device **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, struct nvml_device **device);
int nvmlDeviceGetHandleByPciBusId(const char *id, struct nvml_device **device);
int nvmlDeviceGetUUID(const struct nvml_device *device, char *uuid, unsigned room);
int nvmlSystemGetDriverVersion(char *version, unsigned room);
int nvmlSystemGetNVMLVersion(char *version, unsigned room);
int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlSystemGetCudaDriverVersion(int *version);
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned room);

int nvml_enter(void)
{
    return __atomic_load_n(&n_started, __ATOMIC_RELAXED) > 0 ? NVML_SUCCESS : NVML_UNINITIALIZED;
}

uint32_t nvml_device_count(void)
{
    const struct mt_account *account = pretend_cuda_whole();
    return account ? account->n_devices : 0;
}

const struct mt_account_device *nvml_account_device(uint32_t place)
{
    return &pretend_cuda_whole()->device[place];
}

struct nvml_device *nvml_device(uint32_t place)
{
    return &devices[place];
}

int nvml_find(const struct nvml_device *device, uint32_t *place)
{
    if (nvml_enter() != NVML_SUCCESS)
        return NVML_UNINITIALIZED;
    for (uint32_t i = 0; i < nvml_device_count(); i++)
        if (device == &devices[i]) {
            *place = i;
            return NVML_SUCCESS;
        }
    return NVML_INVALID_ARGUMENT;
}

int nvml_ask(const struct nvml_device *device, const void *answer, uint32_t *place)
{
    int result = nvml_find(device, place);
    return result == NVML_SUCCESS && !answer ? NVML_INVALID_ARGUMENT : result;
}

int nvml_text(char *buffer, unsigned room, const char *text)
{
    size_t length = strlen(text);
    if (!buffer)
        return NVML_INVALID_ARGUMENT;
    if (length >= room)
        return NVML_INSUFFICIENT_SIZE;
    memcpy(buffer, text, length + 1);
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlInitWithFlags(unsigned flags)
{
    struct mt_account_cuda *cuda = pretend_cuda_account();
    (void)flags;
    if (!cuda || !cuda->driver_version)
        return NVML_DRIVER_NOT_LOADED;
    __atomic_fetch_add(&cuda->n_askings, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&n_started, 1, __ATOMIC_RELAXED);
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

PRETEND_CALL int nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

PRETEND_CALL int nvmlShutdown(void)
{
    if (__atomic_fetch_sub(&n_started, 1, __ATOMIC_RELAXED) > 0)
        return NVML_SUCCESS;
    __atomic_fetch_add(&n_started, 1, __ATOMIC_RELAXED);
    return NVML_UNINITIALIZED;
}

PRETEND_CALL const char *nvmlErrorString(int result)
{
    static const char *const words[] = {
        "Success",
        "Uninitialized",
        "Invalid Argument",
        "Not Supported",
        "Insufficient Permissions",
        "Already Initialized",
        "Not Found",
        "Insufficient Size",
        "Insufficient External Power",
        "Driver Not Loaded",
        "Timeout",
        "Interrupt Request Issue",
        "NVML Shared Library Not Found",
        "Function Not Found",
        "Corrupted infoROM",
        "GPU is lost",
        "GPU requires reset",
        "GPU access blocked by the operating system",
        "Driver/library version mismatch",
        "In use by another client",
        "Insufficient Memory",
        "No data",
        "vGPU ECC not supported",
        "Insufficient resources",
        "Frequency not supported",
        "Argument version mismatch",
    };
    return result >= 0 && (size_t)result < sizeof words / sizeof *words ? words[result]
                                                                        : "Unknown Error";
}

PRETEND_CALL int nvmlDeviceGetCount_v2(unsigned *count)
{
    if (nvml_enter() != NVML_SUCCESS)
        return NVML_UNINITIALIZED;
    if (!count)
        return NVML_INVALID_ARGUMENT;
    *count = nvml_device_count();
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

PRETEND_CALL int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **device)
{
    if (nvml_enter() != NVML_SUCCESS)
        return NVML_UNINITIALIZED;
    if (!device || index >= nvml_device_count())
        return NVML_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlDeviceGetHandleByIndex(unsigned index, struct nvml_device **device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

PRETEND_CALL int nvmlDeviceGetUUID(const struct nvml_device *device, char *uuid, unsigned room)
{
    uint32_t place;
    char text[PRETEND_UUID_TEXT];
    int result = nvml_find(device, &place);
    if (result != NVML_SUCCESS)
        return result;
    pretend_place_uuid_text(place, text);
    return nvml_text(uuid, room, text);
}

PRETEND_CALL int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **device)
{
    char text[PRETEND_UUID_TEXT];
    if (nvml_enter() != NVML_SUCCESS)
        return NVML_UNINITIALIZED;
    if (!uuid || !device)
        return NVML_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < nvml_device_count(); i++) {
        pretend_place_uuid_text(i, text);
        if (strcasecmp(text, uuid) == 0) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_NOT_FOUND;
}

/* "domain:bus:device.function", or without the domain. */
PRETEND_CALL int nvmlDeviceGetHandleByPciBusId_v2(const char *id, struct nvml_device **device)
{
    unsigned domain = 0, bus, number;
    if (nvml_enter() != NVML_SUCCESS)
        return NVML_UNINITIALIZED;
    if (!id || !device)
        return NVML_INVALID_ARGUMENT;
    if (sscanf(id, "%x:%x:%x", &domain, &bus, &number) != 3) {
        domain = 0;
        if (sscanf(id, "%x:%x", &bus, &number) != 2)
            return NVML_INVALID_ARGUMENT;
    }
    for (uint32_t i = 0; i < nvml_device_count() && !domain && !number; i++)
        if (pretend_place_bus(i) == bus) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    return NVML_NOT_FOUND;
}

PRETEND_CALL int nvmlDeviceGetHandleByPciBusId(const char *id, struct nvml_device **device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

/* The driver that came with a version of CUDA (CUDA's release notes, table 3). */
static const char *driver_version(void)
{
    static const struct {
        uint32_t cuda;
        const char *driver;
    } table[] = {{13000, "580.65.06"}, {12090, "575.51.03"}, {12080, "570.86.10"},
                 {12060, "560.28.03"}, {12050, "555.42.02"}, {12040, "550.54.14"},
                 {12030, "545.23.06"}, {12020, "535.54.03"}, {12010, "530.30.02"},
                 {12000, "525.60.13"}, {0, "450.36.06"}};
    size_t i = 0;
    while (table[i].cuda > pretend_cuda_account()->driver_version)
        i++;
    return table[i].driver;
}

PRETEND_CALL int nvmlSystemGetDriverVersion(char *version, unsigned room)
{
    return nvml_enter() == NVML_SUCCESS ? nvml_text(version, room, driver_version())
                                        : NVML_UNINITIALIZED;
}

PRETEND_CALL int nvmlSystemGetNVMLVersion(char *version, unsigned room)
{
    char text[80];
    if (nvml_enter() != NVML_SUCCESS)
        return NVML_UNINITIALIZED;
    snprintf(text, sizeof text, "%u.%s", pretend_cuda_account()->driver_version / 1000,
             driver_version());
    return nvml_text(version, room, text);
}

PRETEND_CALL int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    const struct mt_account_cuda *cuda = pretend_cuda_account();
    if (!version)
        return NVML_INVALID_ARGUMENT;
    if (!cuda)
        return NVML_DRIVER_NOT_LOADED;
    *version = (int)cuda->driver_version;
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

PRETEND_CALL int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned room)
{
    char link[32], path[4096];
    ssize_t length;
    if (nvml_enter() != NVML_SUCCESS)
        return NVML_UNINITIALIZED;
    if (!name || !room)
        return NVML_INVALID_ARGUMENT;
    snprintf(link, sizeof link, "/proc/%u/exe", pid);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return NVML_NOT_FOUND;
    path[(size_t)length < room - 1 ? (size_t)length : room - 1] = '\0';
    return nvml_text(name, room, path);
}
