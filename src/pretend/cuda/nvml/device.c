/* SPDX-License-Identifier: MIT */
/* What a device of the pretended NVML is: facts of the GPU table, and of its place. */
#include <stdio.h>
#include <string.h>

#include "nvml.h"
#include "pretend/cuda/place.h"

/* nvmlPciInfo_t; the older one ends before `id`. */
struct pci {
    char old_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

/* nvmlPciInfoExt_v1_t. */
struct pci_more {
    unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char id[32];
};

#define NVIDIA 0x10deu

int nvmlDeviceGetName(const struct nvml_device *device, char *name, unsigned room);
int nvmlDeviceGetPciInfo_v3(const struct nvml_device *device, struct pci *pci);
int nvmlDeviceGetPciInfo_v2(const struct nvml_device *device, struct pci *pci);
int nvmlDeviceGetPciInfo(const struct nvml_device *device, struct pci *pci);
int nvmlDeviceGetPciInfoExt(const struct nvml_device *device, struct pci_more *pci);
int nvmlDeviceGetCudaComputeCapability(const struct nvml_device *device, int *major, int *minor);
int nvmlDeviceGetEccMode(const struct nvml_device *device, unsigned *current, unsigned *pending);
int nvmlDeviceGetMigMode(const struct nvml_device *device, unsigned *current, unsigned *pending);
int nvmlDeviceGetClockInfo(const struct nvml_device *device, int type, unsigned *mhz);
int nvmlDeviceGetMaxClockInfo(const struct nvml_device *device, int type, unsigned *mhz);
int nvmlDeviceGetMaxCustomerBoostClock(const struct nvml_device *device, int type, unsigned *mhz);
int nvmlDeviceGetGpuFabricInfoV(const struct nvml_device *device, void *info);
int nvmlDeviceGetGpuFabricInfo(const struct nvml_device *device, void *info);

PRETEND_CALL int nvmlDeviceGetName(const struct nvml_device *device, char *name, unsigned room)
{
    uint32_t place;
    int result = nvml_find(device, &place);
    return result == NVML_SUCCESS ? nvml_text(name, room, nvml_account_device(place)->gpu.name)
                                  : result;
}

PRETEND_CALL int nvmlDeviceGetPciInfo_v2(const struct nvml_device *device, struct pci *pci)
{
    uint32_t place;
    int result = nvml_ask(device, pci, &place);
    if (result != NVML_SUCCESS)
        return result;
    memset(pci, 0, offsetof(struct pci, id));
    pci->bus = pretend_place_bus(place);
    pci->device_id = NVIDIA;
    snprintf(pci->old_id, sizeof pci->old_id, "0000:%02X:00.0", pci->bus);
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlDeviceGetPciInfo(const struct nvml_device *device, struct pci *pci)
{
    return nvmlDeviceGetPciInfo_v2(device, pci);
}

PRETEND_CALL int nvmlDeviceGetPciInfo_v3(const struct nvml_device *device, struct pci *pci)
{
    int result = nvmlDeviceGetPciInfo_v2(device, pci);
    if (result == NVML_SUCCESS)
        snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", pci->bus);
    return result;
}

PRETEND_CALL int nvmlDeviceGetPciInfoExt(const struct nvml_device *device, struct pci_more *pci)
{
    uint32_t place;
    int result = nvml_ask(device, pci, &place);
    if (result != NVML_SUCCESS)
        return result;
    *pci = (struct pci_more){.version = pci->version,
                             .bus = pretend_place_bus(place),
                             .device_id = NVIDIA,
                             .base_class = 3,
                             .sub_class = 2};
    snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", pci->bus);
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlDeviceGetCudaComputeCapability(const struct nvml_device *device, int *major,
                                                    int *minor)
{
    uint32_t place;
    int result = nvml_find(device, &place);
    if (result != NVML_SUCCESS)
        return result;
    if (!major || !minor)
        return NVML_INVALID_ARGUMENT;
    *major = (int)(nvml_account_device(place)->gpu.capability / 10);
    *minor = (int)(nvml_account_device(place)->gpu.capability % 10);
    return NVML_SUCCESS;
}

/* nvmlDeviceArchitecture_t: 5 is Volta, 6 Turing, 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell. */
static unsigned architecture(const struct mt_gpu_spec *gpu)
{
    static const struct {
        unsigned capability, architecture;
    } table[] = {{100, 10}, {90, 9}, {89, 8}, {80, 7}, {75, 6}, {70, 5}, {60, 4}, {50, 3}, {0, 2}};
    size_t i = 0;
    while (table[i].capability > gpu->capability)
        i++;
    return table[i].architecture;
}

/* Cores of a multiprocessor (CUDA programming guide, arithmetic throughput). */
static unsigned cores(const struct mt_gpu_spec *gpu)
{
    int is_half = gpu->capability == 60 || (gpu->capability >= 70 && gpu->capability <= 80);
    return gpu->multiprocessors * (is_half ? 64 : 128);
}

/* nvmlBrandType_t: 14 is GeForce RTX, 13 NVIDIA. */
static unsigned brand(const struct mt_gpu_spec *gpu)
{
    return strstr(gpu->name, "GeForce") ? 14 : 13;
}

static unsigned pci_generation(const struct mt_gpu_spec *gpu)
{
    return gpu->capability >= 90 ? 5 : gpu->capability >= 80 ? 4 : 3;
}

/* ANSWER(name, value): one number, out of the GPU table or of the place. */
#define ANSWER(name, value)                                                                        \
    int name(const struct nvml_device *device, unsigned *answer);                                  \
    PRETEND_CALL int name(const struct nvml_device *device, unsigned *answer)                      \
    {                                                                                              \
        uint32_t place;                                                                            \
        const struct mt_gpu_spec *gpu;                                                             \
        int result = nvml_ask(device, answer, &place);                                             \
        if (result != NVML_SUCCESS)                                                                \
            return result;                                                                         \
        gpu = &nvml_account_device(place)->gpu;                                                    \
        (void)gpu;                                                                                 \
        *answer = (value);                                                                         \
        return NVML_SUCCESS;                                                                       \
    }
ANSWER(nvmlDeviceGetIndex, place)
ANSWER(nvmlDeviceGetMinorNumber, place)
ANSWER(nvmlDeviceGetModuleId, place)
ANSWER(nvmlDeviceGetBoardId, pretend_place_bus(place) << 8)
ANSWER(nvmlDeviceGetMultiGpuBoard, 0)
ANSWER(nvmlDeviceGetArchitecture, architecture(gpu))
ANSWER(nvmlDeviceGetBrand, brand(gpu))
ANSWER(nvmlDeviceGetNumGpuCores, cores(gpu))
ANSWER(nvmlDeviceGetMemoryBusWidth, gpu->memory_bus_bits)
ANSWER(nvmlDeviceGetMaxPcieLinkGeneration, pci_generation(gpu))
ANSWER(nvmlDeviceGetGpuMaxPcieLinkGeneration, pci_generation(gpu))
ANSWER(nvmlDeviceGetCurrPcieLinkGeneration, pci_generation(gpu))
ANSWER(nvmlDeviceGetMaxPcieLinkWidth, 16)
ANSWER(nvmlDeviceGetCurrPcieLinkWidth, 16)
ANSWER(nvmlDeviceGetPersistenceMode, 1)
ANSWER(nvmlDeviceGetComputeMode, 0)
ANSWER(nvmlDeviceGetDisplayMode, 0)
ANSWER(nvmlDeviceGetDisplayActive, 0)
ANSWER(nvmlDeviceGetPerformanceState, 0)
ANSWER(nvmlDeviceGetPowerState, 0)
ANSWER(nvmlDeviceGetMaxMigDeviceCount, 0)
ANSWER(nvmlDeviceIsMigDeviceHandle, 0)
ANSWER(nvmlDeviceGetBusType, 2) /* PCIe */
ANSWER(nvmlDeviceGetDefaultEccMode, gpu->is_ecc)

static int tell_pair(unsigned *current, unsigned *pending, unsigned value)
{
    if (!current || !pending)
        return NVML_INVALID_ARGUMENT;
    *current = *pending = value;
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlDeviceGetEccMode(const struct nvml_device *device, unsigned *current,
                                      unsigned *pending)
{
    uint32_t place;
    int result = nvml_find(device, &place);
    return result == NVML_SUCCESS
               ? tell_pair(current, pending, nvml_account_device(place)->gpu.is_ecc)
               : result;
}

/* Devices that can be divided have 8.0, 9.0 or 10.0; none is. */
PRETEND_CALL int nvmlDeviceGetMigMode(const struct nvml_device *device, unsigned *current,
                                      unsigned *pending)
{
    uint32_t place;
    int result = nvml_find(device, &place);
    if (result != NVML_SUCCESS)
        return result;
    if (nvml_account_device(place)->gpu.capability % 10 ||
        nvml_account_device(place)->gpu.capability < 80)
        return NVML_NOT_SUPPORTED;
    return tell_pair(current, pending, 0);
}

PRETEND_CALL int nvmlDeviceGetClockInfo(const struct nvml_device *device, int type, unsigned *mhz)
{
    enum { GRAPHICS, SM, MEMORY, VIDEO };
    const struct mt_gpu_spec *gpu;
    uint32_t place;
    int result = nvml_find(device, &place);
    if (result != NVML_SUCCESS)
        return result;
    if (!mhz || type < GRAPHICS || type > VIDEO)
        return NVML_INVALID_ARGUMENT;
    gpu = &nvml_account_device(place)->gpu;
    *mhz = (type == MEMORY ? gpu->memory_clock_khz : gpu->clock_khz) / 1000;
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlDeviceGetMaxClockInfo(const struct nvml_device *device, int type,
                                           unsigned *mhz)
{
    return nvmlDeviceGetClockInfo(device, type, mhz);
}

PRETEND_CALL int nvmlDeviceGetMaxCustomerBoostClock(const struct nvml_device *device, int type,
                                                    unsigned *mhz)
{
    return nvmlDeviceGetClockInfo(device, type, mhz);
}

/* nvmlGpuFabricInfo_t is 28 bytes, and the versioned one says its size in the low three bytes of
 * its version. No fabric joins the devices over machines: state 0. */
PRETEND_CALL int nvmlDeviceGetGpuFabricInfo(const struct nvml_device *device, void *info)
{
    uint32_t place;
    int result = nvml_ask(device, info, &place);
    if (result == NVML_SUCCESS)
        memset(info, 0, 28);
    return result;
}

PRETEND_CALL int nvmlDeviceGetGpuFabricInfoV(const struct nvml_device *device, void *info)
{
    uint32_t place, version;
    int result = nvml_ask(device, info, &place);
    if (result != NVML_SUCCESS)
        return result;
    memcpy(&version, info, sizeof version);
    if ((version & 0xffffff) < 32 || (version & 0xffffff) > 128)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    memset((char *)info + sizeof version, 0, (version & 0xffffff) - sizeof version);
    return NVML_SUCCESS;
}
