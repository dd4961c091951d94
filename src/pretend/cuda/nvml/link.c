/* SPDX-License-Identifier: MIT */
/* How devices of the pretended NVML are joined: by the link of the GPU table. Those of data centres
 * that have NVLink meet at a switch. */
#include <sched.h>
#include <string.h>

#include "nvml.h"

#define LINKS_MOST 18 /* NVML_NVLINK_MAX_LINKS */

/* nvmlFieldValue_t. */
struct field {
    unsigned id, scope;
    long long time, latency;
    int type, result;
    union {
        double real;
        unsigned number;
        unsigned long long long_number;
    } value;
};
#define FIELD_LINK_COUNT 91 /* NVML_FI_DEV_NVLINK_LINK_COUNT */

int nvmlDeviceGetNvLinkState(const struct nvml_device *device, unsigned link, unsigned *is_active);
int nvmlDeviceGetNvLinkVersion(const struct nvml_device *device, unsigned link, unsigned *version);
int nvmlDeviceGetNvLinkCapability(const struct nvml_device *device, unsigned link, int capability,
                                  unsigned *result);
int nvmlDeviceGetNvLinkRemoteDeviceType(const struct nvml_device *device, unsigned link, int *type);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(const struct nvml_device *device, unsigned link, void *pci);
int nvmlDeviceGetPciInfo_v3(const struct nvml_device *device, void *pci);
int nvmlDeviceGetP2PStatus(const struct nvml_device *a, const struct nvml_device *b, int capability,
                           int *status);
int nvmlDeviceGetTopologyCommonAncestor(const struct nvml_device *a, const struct nvml_device *b,
                                        int *level);
int nvmlDeviceOnSameBoard(const struct nvml_device *a, const struct nvml_device *b, int *is_same);
int nvmlDeviceGetFieldValues(const struct nvml_device *device, int n, struct field *field);
int nvmlDeviceGetCpuAffinity(const struct nvml_device *device, unsigned n, unsigned long *set);
int nvmlDeviceGetCpuAffinityWithinScope(const struct nvml_device *device, unsigned n,
                                        unsigned long *set, unsigned scope);
int nvmlDeviceSetCpuAffinity(const struct nvml_device *device);
int nvmlDeviceClearCpuAffinity(const struct nvml_device *device);

/* Links of a device by its generation, and their version (NVIDIA's NVLink page): V100 6, A100 12,
 * RTX 3090 and A40 4, H100 and B200 18. */
static const struct {
    unsigned capability, links, version;
} generations[] = {{100, 18, 5}, {90, 18, 4}, {86, 4, 3}, {80, 12, 3}, {75, 2, 2}, {70, 6, 2}};

static size_t generation(uint32_t place)
{
    size_t i = 0;
    while (i + 1 < sizeof generations / sizeof *generations &&
           generations[i].capability > nvml_account_device(place)->gpu.capability)
        i++;
    return i;
}

unsigned nvml_link_count(uint32_t place)
{
    if (nvml_account_device(place)->gpu.link != MT_GPU_LINK_NVLINK)
        return 0;
    return generations[generation(place)].links;
}

static int find_link(const struct nvml_device *device, unsigned link, const void *answer,
                     uint32_t *place)
{
    int result = nvml_find(device, place);
    if (result != NVML_SUCCESS)
        return result;
    if (link >= LINKS_MOST || !answer)
        return NVML_INVALID_ARGUMENT;
    return link < nvml_link_count(*place) ? NVML_SUCCESS : NVML_NOT_SUPPORTED;
}

PRETEND_CALL int nvmlDeviceGetNvLinkState(const struct nvml_device *device, unsigned link,
                                          unsigned *is_active)
{
    uint32_t place;
    int result = find_link(device, link, is_active, &place);
    if (result == NVML_SUCCESS)
        *is_active = nvml_device_count() > 1;
    return result;
}

PRETEND_CALL int nvmlDeviceGetNvLinkVersion(const struct nvml_device *device, unsigned link,
                                            unsigned *version)
{
    uint32_t place;
    int result = find_link(device, link, version, &place);
    if (result == NVML_SUCCESS)
        *version = generations[generation(place)].version;
    return result;
}

/* All that a link can do: reach the other's memory and the host's, atomically too. */
PRETEND_CALL int nvmlDeviceGetNvLinkCapability(const struct nvml_device *device, unsigned link,
                                               int capability, unsigned *answer)
{
    enum { PEERS, HOST, PEER_ATOMICS, HOST_ATOMICS, SLI, VALID };
    uint32_t place;
    int result = find_link(device, link, answer, &place);
    if (result != NVML_SUCCESS)
        return result;
    if (capability < PEERS || capability > VALID)
        return NVML_INVALID_ARGUMENT;
    *answer = capability == PEERS || capability == PEER_ATOMICS || capability == VALID;
    return NVML_SUCCESS;
}

static int has_switch(uint32_t place)
{
    return nvml_account_device(place)->gpu.capability % 10 == 0;
}

PRETEND_CALL int nvmlDeviceGetNvLinkRemoteDeviceType(const struct nvml_device *device,
                                                     unsigned link, int *type)
{
    enum { GPU, NPU, SWITCH };
    uint32_t place;
    int result = find_link(device, link, type, &place);
    if (result == NVML_SUCCESS)
        *type = has_switch(place) ? SWITCH : GPU;
    return result;
}

/* Without a switch a device is joined to its neighbour; a switch has no place of its own here. */
PRETEND_CALL int nvmlDeviceGetNvLinkRemotePciInfo_v2(const struct nvml_device *device,
                                                     unsigned link, void *pci)
{
    uint32_t place;
    int result = find_link(device, link, pci, &place);
    if (result != NVML_SUCCESS)
        return result;
    if (has_switch(place) || (place ^ 1) >= nvml_device_count())
        return NVML_NOT_SUPPORTED;
    return nvmlDeviceGetPciInfo_v3(nvml_device(place ^ 1), pci);
}

static int find_two(const struct nvml_device *a, const struct nvml_device *b, const void *answer,
                    uint32_t place[2])
{
    int result = nvml_find(a, &place[0]);
    if (result == NVML_SUCCESS)
        result = nvml_find(b, &place[1]);
    return result == NVML_SUCCESS && !answer ? NVML_INVALID_ARGUMENT : result;
}

/* Over PCI alone, GeForce reaches nobody (CUDA's own answer is the same). */
static int are_peers(const struct mt_gpu_spec *a, const struct mt_gpu_spec *b)
{
    if (a->link == MT_GPU_LINK_NVLINK && b->link == MT_GPU_LINK_NVLINK)
        return 1;
    return !strstr(a->name, "GeForce") && !strstr(b->name, "GeForce");
}

PRETEND_CALL int nvmlDeviceGetP2PStatus(const struct nvml_device *a, const struct nvml_device *b,
                                        int capability, int *status)
{
    enum { READ, WRITE, NVLINK, ATOMICS, PCI, UNKNOWN };
    enum { OK, CHIPSET_NOT_SUPPORTED, NOT_SUPPORTED = 5 };
    const struct mt_gpu_spec *gpu[2];
    uint32_t place[2];
    int has_link, result = find_two(a, b, status, place);
    if (result != NVML_SUCCESS)
        return result;
    if (capability < READ || capability >= UNKNOWN)
        return NVML_INVALID_ARGUMENT;
    for (int i = 0; i < 2; i++)
        gpu[i] = &nvml_account_device(place[i])->gpu;
    has_link = gpu[0]->link == MT_GPU_LINK_NVLINK && gpu[1]->link == MT_GPU_LINK_NVLINK;
    if (capability == NVLINK || capability == ATOMICS)
        *status = has_link ? OK : NOT_SUPPORTED;
    else
        *status = are_peers(gpu[0], gpu[1]) ? OK : CHIPSET_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlDeviceGetTopologyCommonAncestor(const struct nvml_device *a,
                                                     const struct nvml_device *b, int *level)
{
    enum { INTERNAL = 0, NODE = 40 };
    uint32_t place[2];
    int result = find_two(a, b, level, place);
    if (result == NVML_SUCCESS)
        *level = place[0] == place[1] ? INTERNAL : NODE;
    return result;
}

PRETEND_CALL int nvmlDeviceOnSameBoard(const struct nvml_device *a, const struct nvml_device *b,
                                       int *is_same)
{
    uint32_t place[2];
    int result = find_two(a, b, is_same, place);
    if (result == NVML_SUCCESS)
        *is_same = place[0] == place[1];
    return result;
}

/* Each field has a result of its own. */
PRETEND_CALL int nvmlDeviceGetFieldValues(const struct nvml_device *device, int n,
                                          struct field *field)
{
    uint32_t place;
    int result = nvml_find(device, &place);
    if (result != NVML_SUCCESS)
        return result;
    if (n < 0 || (n && !field))
        return NVML_INVALID_ARGUMENT;
    for (int i = 0; i < n; i++) {
        field[i].result = NVML_NOT_SUPPORTED;
        if (field[i].id != FIELD_LINK_COUNT)
            continue;
        field[i].result = NVML_SUCCESS;
        field[i].type = 1; /* an unsigned number */
        field[i].value.number = nvml_link_count(place);
    }
    return NVML_SUCCESS;
}

/* Every processor is as near as another. */
PRETEND_CALL int nvmlDeviceGetCpuAffinity(const struct nvml_device *device, unsigned n,
                                          unsigned long *set)
{
    cpu_set_t cpus;
    uint32_t place;
    int result = nvml_find(device, &place);
    if (result != NVML_SUCCESS)
        return result;
    if (!n || !set)
        return NVML_INVALID_ARGUMENT;
    memset(set, 0, n * sizeof *set);
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        memcpy(set, &cpus, n * sizeof *set < sizeof cpus ? n * sizeof *set : sizeof cpus);
    return NVML_SUCCESS;
}

PRETEND_CALL int nvmlDeviceGetCpuAffinityWithinScope(const struct nvml_device *device, unsigned n,
                                                     unsigned long *set, unsigned scope)
{
    (void)scope;
    return nvmlDeviceGetCpuAffinity(device, n, set);
}

PRETEND_CALL int nvmlDeviceSetCpuAffinity(const struct nvml_device *device)
{
    uint32_t place;
    return nvml_find(device, &place);
}

PRETEND_CALL int nvmlDeviceClearCpuAffinity(const struct nvml_device *device)
{
    uint32_t place;
    return nvml_find(device, &place);
}
