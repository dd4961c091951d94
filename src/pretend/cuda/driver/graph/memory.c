/* SPDX-License-Identifier: MIT */
/* Memory that graphs allocate. A device keeps what one launch left free for the next ones, until it
 * is trimmed; what is kept is one number here, for graphs' addresses are their own. */
#include "pretend/cuda/driver/memory/memory.h"
#include "rehearse/account_write.h"

struct graph_memory {
    uint64_t used, used_high, reserved, reserved_high;
};
static struct graph_memory of_device[MT_ACCOUNT_DEVICES_MAX];

CUresult pretend_graph_memory_make(CUdevice device, uint64_t bytes, CUdeviceptr *pointer)
{
    if (!pretend_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!bytes || !pointer)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > PRETEND_ADDRESSES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pretend_lock();
    struct pretend_range *range = pretend_range_make(PRETEND_NODES, device, bytes);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (range) {
        range->span = pretend_round_up(bytes, PRETEND_PAGE);
        result = pretend_range_place(range, PRETEND_PAGE, 0);
    }
    if (result == CUDA_SUCCESS)
        *pointer = range->base;
    else if (range)
        pretend_range_drop(range);
    pretend_unlock();
    return result;
}

static struct pretend_range *find(CUdeviceptr pointer)
{
    struct pretend_range *range = pretend_range_around(pointer);
    return range && range->kind == PRETEND_NODES && range->base == pointer ? range : NULL;
}

static CUresult attach(struct pretend_range *range)
{
    struct graph_memory *memory = &of_device[range->device];
    range->held = range->span;
    CUresult result = pretend_charge(range, range->bytes, "graph memory");
    if (result != CUDA_SUCCESS) {
        range->held = 0;
        return result;
    }
    memory->used += range->span;
    if (memory->used_high < memory->used)
        memory->used_high = memory->used;
    memory->reserved = memory->used;
    if (memory->reserved_high < memory->reserved)
        memory->reserved_high = memory->reserved;
    return CUDA_SUCCESS;
}

CUresult pretend_graph_memory_attach(CUdeviceptr pointer)
{
    pretend_lock();
    struct pretend_range *range = find(pointer);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (range)
        result = range->held ? CUDA_SUCCESS : attach(range);
    pretend_unlock();
    return result;
}

void pretend_graph_memory_give(struct pretend_range *range)
{
    struct graph_memory *memory = &of_device[range->device];
    if (!range->held)
        return;
    pretend_discharge(range);
    memory->used -= range->span;
    memory->reserved = memory->used;
    range->held = 0;
    pretend_written_clear(range->base, range->span);
}

void pretend_graph_memory_detach(CUdeviceptr pointer)
{
    pretend_lock();
    struct pretend_range *range = find(pointer);
    if (range)
        pretend_graph_memory_give(range);
    pretend_unlock();
    if (!range)
        pretend_memory_give(pointer); /* a graph may free what was allocated outside */
}

void pretend_graph_memory_drop(CUdeviceptr pointer)
{
    pretend_lock();
    struct pretend_range *range = find(pointer);
    if (range) {
        pretend_graph_memory_give(range);
        pretend_range_remove(range);
        pretend_range_drop(range);
    }
    pretend_unlock();
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value);
PRETEND_CALL CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                                   void *value)
{
    CUresult result = pretend_enter_device(device, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!value || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    const struct graph_memory *memory = &of_device[device];
    const uint64_t numbers[] = {memory->used, memory->used_high, memory->reserved,
                                memory->reserved_high};
    *(uint64_t *)value = numbers[attribute];
    pretend_unlock();
    return CUDA_SUCCESS;
}

/* High marks only, and to zero only. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value);
PRETEND_CALL CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                                   void *value)
{
    CUresult result = pretend_enter_device(device, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!value || *(const uint64_t *)value)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    struct graph_memory *memory = &of_device[device];
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        memory->used_high = memory->used;
    else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        memory->reserved_high = memory->reserved;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    return result;
}

/* Nothing is kept beyond its use here. */
CUresult cuDeviceGraphMemTrim(CUdevice device);
PRETEND_CALL CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    return pretend_enter_device(device, NULL);
}
