/* SPDX-License-Identifier: MIT */
/* Which devices there are, where they sit, and which of them reach each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/driver/world.h"
#include "pretend/cuda/place.h"

PRETEND_CALL CUresult cuDriverGetVersion(int *version)
{
    const struct mt_account_cuda *cuda = pretend_cuda_account();
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = cuda ? (int)cuda->driver_version : 0;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuDeviceGetCount(int *count)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = pretend_device_count();
    return CUDA_SUCCESS;
}

/* What every question about a device begins with. */
static CUresult ask(CUdevice number, const void *answer, const struct pretend_device **device)
{
    CUresult result = pretend_enter();
    *device = pretend_device(number);
    if (result != CUDA_SUCCESS)
        return result;
    if (!answer)
        return CUDA_ERROR_INVALID_VALUE;
    return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

PRETEND_CALL CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    const struct pretend_device *found;
    CUresult result = ask(ordinal, device, &found);
    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}

PRETEND_CALL CUresult cuDeviceGetName(char *name, int length, CUdevice number)
{
    const struct pretend_device *device;
    CUresult result = ask(number, name, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "%s", device->gpu->name);
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice number)
{
    const struct pretend_device *device;
    CUresult result = ask(number, uuid, &device);
    if (result == CUDA_SUCCESS)
        pretend_place_uuid(device->place, uuid->bytes);
    return result;
}

PRETEND_CALL CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice number)
{
    return cuDeviceGetUuid_v2(uuid, number);
}

/* Only Windows has such identifiers. */
PRETEND_CALL CUresult cuDeviceGetLuid(char *luid, unsigned *nodes, CUdevice number)
{
    const struct pretend_device *device;
    CUresult result = ask(number, luid, &device);
    (void)nodes;
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result;
}

PRETEND_CALL CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice number)
{
    const struct pretend_device *device;
    CUresult result = ask(number, bytes, &device);
    if (result == CUDA_SUCCESS)
        *bytes = device->total_bytes;
    return result;
}

PRETEND_CALL CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice number)
{
    const struct pretend_device *device;
    CUresult result = ask(number, bytes, &device);
    if (result == CUDA_SUCCESS)
        *bytes = device->total_bytes > UINT32_MAX ? UINT32_MAX : (unsigned)device->total_bytes;
    return result;
}

PRETEND_CALL CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice number)
{
    const struct pretend_device *device;
    char bus[PRETEND_BUS_TEXT];
    CUresult result = ask(number, text, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (length < PRETEND_BUS_TEXT)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_place_bus_text(device->place, bus);
    memcpy(text, bus, sizeof bus);
    return CUDA_SUCCESS;
}

/* "[domain]:[bus]:[device].[function]", the first and the last may be left out. */
static int bus_of(const char *text, unsigned *bus)
{
    unsigned long part[3];
    char *end = NULL;
    int n = 0;
    for (; n < 3; text = end + 1) {
        part[n++] = strtoul(text, &end, 16);
        if (end == text)
            return 0;
        if (*end != ':')
            break;
    }
    *bus = (unsigned)(n == 3 ? part[1] : part[0]);
    return n > 1 && part[n - 1] == 0 && (n < 3 || part[0] == 0);
}

PRETEND_CALL CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    unsigned bus;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!device || !text || !bus_of(text, &bus))
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < pretend_device_count(); i++) {
        if (pretend_place_bus(pretend_device(i)->place) == bus) {
            *device = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

/* Between devices. GeForce cards since Ampere without NVLink reach no peer; here every pair that
 * the table gives no link is taken to reach each other over PCI only on the large cards. */

#define P2P_PERFORMANCE_RANK 1
#define P2P_ACCESS           2
#define P2P_NATIVE_ATOMIC    3
#define P2P_ARRAY_ACCESS     4
#define P2P_PARTIAL_ATOMIC   5

int pretend_can_access_peer(CUdevice number, CUdevice peer_number)
{
    const struct pretend_device *device = pretend_device(number);
    const struct pretend_device *peer = pretend_device(peer_number);
    if (number == peer_number || !device || !peer)
        return 0;
    if (device->gpu->link == MT_GPU_LINK_NVLINK && peer->gpu->link == MT_GPU_LINK_NVLINK)
        return 1;
    return !strstr(device->gpu->name, "GeForce") && !strstr(peer->gpu->name, "GeForce");
}

PRETEND_CALL CUresult cuDeviceCanAccessPeer(int *can, CUdevice number, CUdevice peer)
{
    const struct pretend_device *device;
    CUresult result = ask(number, can, &device);
    if (result == CUDA_SUCCESS)
        result = ask(peer, can, &device);
    if (result == CUDA_SUCCESS)
        *can = pretend_can_access_peer(number, peer);
    return result;
}

PRETEND_CALL CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice number,
                                              CUdevice peer_number)
{
    const struct pretend_device *device, *peer;
    CUresult result = ask(number, value, &device);
    if (result == CUDA_SUCCESS)
        result = ask(peer_number, value, &peer);
    if (result != CUDA_SUCCESS)
        return result;
    if (number == peer_number)
        return CUDA_ERROR_INVALID_DEVICE;
    int can = pretend_can_access_peer(number, peer_number);
    int is_linked = can && device->gpu->link == MT_GPU_LINK_NVLINK;
    switch (attribute) {
    case P2P_PERFORMANCE_RANK:
        *value = can && !is_linked;
        break;
    case P2P_ACCESS:
        *value = can;
        break;
    case P2P_NATIVE_ATOMIC:
        *value = is_linked;
        break;
    case P2P_ARRAY_ACCESS:
        *value = can;
        break;
    case P2P_PARTIAL_ATOMIC:
        *value = is_linked;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuDeviceGetExecAffinitySupport(int *is_supported, int type, CUdevice number)
{
    const struct pretend_device *device;
    CUresult result = ask(number, is_supported, &device);
    (void)type;
    if (result == CUDA_SUCCESS)
        *is_supported = 0;
    return result;
}

PRETEND_CALL CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *elements, int format,
                                                         unsigned channels, CUdevice number)
{
    const struct pretend_device *device;
    CUresult result = ask(number, elements, &device);
    (void)format, (void)channels;
    if (result == CUDA_SUCCESS)
        *elements = 268435456;
    return result;
}
