/* SPDX-License-Identifier: MIT */
/* What a pointer is of: cuPointerGetAttribute and its kin. */
#include <string.h>

#include "memory.h"

static int is_of_host(const struct pretend_range *range)
{
    return range->kind == PRETEND_PINNED || range->kind == PRETEND_REGISTERED;
}

static int may_be_read_by_host(const struct pretend_range *range)
{
    return is_of_host(range) || range->kind == PRETEND_MANAGED;
}

static uint64_t context_of(const struct pretend_range *range)
{
    return range->kind == PRETEND_MAP || range->kind == PRETEND_POOLED
               ? 0
               : (uint64_t)(uintptr_t)pretend_device(range->device)->primary;
}

/* How many bytes an attribute has, 0 where there is none such. */
static uint8_t bytes_of(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return 4;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return 1;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return 8;
    default:
        return 0;
    }
}

static uint64_t number_of(const struct pretend_range *range, CUpointer_attribute attribute,
                          CUdeviceptr pointer)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return context_of(range);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return is_of_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return pointer;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return may_be_read_by_host(range) ? pointer : 0;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return range->id;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return range->kind == PRETEND_MANAGED;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return (uint64_t)range->device;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return range->kind == PRETEND_LINEAR || range->kind == PRETEND_SMALL;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return range->base;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return range->bytes;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return 1;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return range->access;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return range->kind == PRETEND_POOLED ? (uint64_t)(uintptr_t)pretend_pool_handle(range) : 0;
    default:
        return 0;
    }
}

static void store(void *data, uint64_t number, uint8_t bytes)
{
    memcpy(data, &number, bytes);
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer);
PRETEND_CALL CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                            CUdeviceptr pointer)
{
    CUresult result = pretend_enter();
    uint8_t bytes = bytes_of(attribute);
    if (result != CUDA_SUCCESS)
        return result;
    if (!data || !bytes)
        return attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS ? CUDA_ERROR_NOT_SUPPORTED
                                                            : CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    const struct pretend_range *range = pretend_range_find(pointer);
    if (!range || (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && !may_be_read_by_host(range)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (range)
        store(data, number_of(range, attribute, pointer), bytes);
    pretend_unlock();
    return result;
}

/* If the driver does not know the memory, the call succeeds: each attribute is zero, and the device
 * is -2. */
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr pointer);
PRETEND_CALL CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes,
                                             void **data, CUdeviceptr pointer)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!n || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < n; i++)
        if (!data[i] || !bytes_of(attributes[i]))
            return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    const struct pretend_range *range = pretend_range_find(pointer);
    for (unsigned i = 0; i < n; i++) {
        uint64_t unknown =
            attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint64_t)(int64_t)-2 : 0;
        store(data[i], range ? number_of(range, attributes[i], pointer) : unknown,
              bytes_of(attributes[i]));
    }
    pretend_unlock();
    return CUDA_SUCCESS;
}

/* Copies are done when their call returns, whatever the program asks for. */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr pointer);
PRETEND_CALL CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                            CUdeviceptr pointer)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    if (!pretend_range_find(pointer))
        result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    return result;
}
