/* SPDX-License-Identifier: MIT */
/* The stream-ordered allocator's calls. On a stream that is captured they become nodes. */
#include "pools.h"

static CUresult enter_current(CUdevice *device)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    *device = pretend_current_device();
    return pretend_device(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult allocate(struct CUmemPoolHandle_st *pool, uint64_t bytes, CUstream stream,
                         CUdeviceptr *pointer)
{
    CUdevice device = pretend_pool_device(pool);
    struct pretend_graph_node *node;
    CUresult result = pretend_capture_work(stream, PRETEND_NODE_ALLOC, &node);
    if (result != CUDA_SUCCESS)
        return result;
    if (node) {
        result = pretend_graph_memory_make(device, bytes, pointer);
        if (result == CUDA_SUCCESS)
            pretend_node_memory(node, device, *pointer, bytes);
        return result;
    }
    pretend_lock();
    result = pretend_pool_take(pool, bytes, pointer);
    pretend_unlock();
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream);
PRETEND_CALL CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    CUdevice device;
    CUresult result = enter_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    struct CUmemPoolHandle_st *pool = pretend_pool_current(device);
    pretend_unlock();
    return pool ? allocate(pool, bytes, stream, pointer) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool handle,
                                 CUstream stream);
PRETEND_CALL CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes,
                                              CUmemoryPool handle, CUstream stream)
{
    CUdevice device;
    CUresult result = enter_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct CUmemPoolHandle_st *pool = pretend_pool_of(handle);
    pretend_unlock();
    if (!pointer || !bytes || !pool)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(pool, bytes, stream, pointer);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream);
PRETEND_CALL CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    CUdevice device;
    CUresult result = enter_current(&device);
    struct pretend_graph_node *node = NULL;
    if (result == CUDA_SUCCESS && pointer)
        result = pretend_capture_work(stream, PRETEND_NODE_FREE, &node);
    if (result != CUDA_SUCCESS || !pointer)
        return result;
    if (!node)
        return pretend_memory_give(pointer);
    pretend_node_memory(node, device, pointer, 0);
    return CUDA_SUCCESS;
}

static CUresult get_pool(CUmemoryPool *handle, CUdevice device,
                         struct CUmemPoolHandle_st *(*which)(int device))
{
    CUresult result = pretend_enter_device(device, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    struct CUmemPoolHandle_st *pool = which(device);
    pretend_unlock();
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = pool;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *handle, CUdevice device);
PRETEND_CALL CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *handle, CUdevice device)
{
    return get_pool(handle, device, pretend_pool_default);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *handle, CUdevice device);
PRETEND_CALL CUresult cuDeviceGetMemPool(CUmemoryPool *handle, CUdevice device)
{
    return get_pool(handle, device, pretend_pool_current);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle);
PRETEND_CALL CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle)
{
    CUresult result = pretend_enter_device(device, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct CUmemPoolHandle_st *pool = pretend_pool_of(handle);
    result = pool ? pretend_pool_set_current(device, pool) : CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    return result;
}

/* The forms of CUDA 13, which name a place; pools are of devices here. */
static CUresult check_location(const CUmemLocation *location, int type)
{
    if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return location ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *handle, CUmemLocation *location, int type);
PRETEND_CALL CUresult cuMemGetDefaultMemPool(CUmemoryPool *handle, CUmemLocation *location,
                                             int type)
{
    CUresult result = check_location(location, type);
    return result == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(handle, location->id) : result;
}

CUresult cuMemGetMemPool(CUmemoryPool *handle, CUmemLocation *location, int type);
PRETEND_CALL CUresult cuMemGetMemPool(CUmemoryPool *handle, CUmemLocation *location, int type)
{
    CUresult result = check_location(location, type);
    return result == CUDA_SUCCESS ? cuDeviceGetMemPool(handle, location->id) : result;
}

CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool handle);
PRETEND_CALL CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool handle)
{
    CUresult result = check_location(location, type);
    return result == CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, handle) : result;
}

CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *props);
PRETEND_CALL CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *props)
{
    struct CUmemPoolHandle_st *pool = NULL;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->handleTypes)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!pretend_device(props->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    pretend_lock();
    result = pretend_pool_make(props->location.id, props->maxSize, &pool);
    pretend_unlock();
    if (result == CUDA_SUCCESS)
        *handle = pool;
    return result;
}

/* A call about one pool, with the lock held. */
static CUresult with_pool(CUmemoryPool handle, struct CUmemPoolHandle_st **pool)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    *pool = pretend_pool_of(handle);
    if (*pool)
        return CUDA_SUCCESS;
    pretend_unlock();
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle);
PRETEND_CALL CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    struct CUmemPoolHandle_st *pool;
    CUresult result = with_pool(handle, &pool);
    if (result != CUDA_SUCCESS)
        return result;
    if (pool == pretend_pool_default(pretend_pool_device(pool)))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        pretend_pool_drop(pool);
    pretend_unlock();
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep);
PRETEND_CALL CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    struct CUmemPoolHandle_st *pool;
    CUresult result = with_pool(handle, &pool);
    if (result != CUDA_SUCCESS)
        return result;
    pretend_pool_trim(pool, keep);
    pretend_unlock();
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value);
PRETEND_CALL CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                            void *value)
{
    struct CUmemPoolHandle_st *pool;
    CUresult result = value ? with_pool(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    result = pretend_pool_get(pool, attribute, value);
    pretend_unlock();
    return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value);
PRETEND_CALL CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                            void *value)
{
    struct CUmemPoolHandle_st *pool;
    CUresult result = value ? with_pool(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    result = pretend_pool_set(pool, attribute, value);
    pretend_unlock();
    return result;
}

/* Peers may always use what a pool gives out; its own device cannot be shut out. */
CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *desc, size_t n);
PRETEND_CALL CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *desc, size_t n)
{
    struct CUmemPoolHandle_st *pool;
    CUresult result = desc || !n ? with_pool(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    for (size_t i = 0; i < n; i++)
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !pretend_device(desc[i].location.id) ||
            (desc[i].location.id == pretend_pool_device(pool) &&
             desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
            result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    return result;
}

CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool handle, CUmemLocation *location);
PRETEND_CALL CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool handle, CUmemLocation *location)
{
    struct CUmemPoolHandle_st *pool;
    CUresult result = flags && location ? with_pool(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && pretend_device(location->id))
        *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    return result;
}
