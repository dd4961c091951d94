/* SPDX-License-Identifier: MIT */
/* Linear memory of devices: cuMemAlloc and its kin. */
#include "memory.h"

#include "pretend/cuda/take.h"
#include "rehearse/account_write.h"

#define PITCH_BYTES 512u

static CUresult take_pages(int device, uint64_t bytes, enum mt_category category, const char *name,
                           CUdeviceptr *pointer)
{
    struct pretend_range *range = pretend_range_make(PRETEND_LINEAR, device, bytes);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->span = range->held = pretend_round_up(bytes, PRETEND_PAGE);
    range->category = (uint8_t)category;
    CUresult result = pretend_range_place(range, PRETEND_PAGE, 0);
    if (result == CUDA_SUCCESS) {
        result = pretend_charge(range, bytes, name);
        if (result != CUDA_SUCCESS)
            pretend_range_remove(range);
    } else {
        pretend_refuse_addresses(device, category, bytes, name);
    }
    if (result != CUDA_SUCCESS)
        pretend_range_drop(range);
    else
        *pointer = range->base;
    return result;
}

CUresult pretend_linear_take(int device, uint64_t bytes, enum mt_category category,
                             const char *name, CUdeviceptr *pointer)
{
    if (bytes > UINT64_MAX - PRETEND_PAGE)
        return pretend_refuse_addresses(device, category, bytes, name);
    if (bytes < PRETEND_SMALL_BELOW)
        return pretend_slab_take(device, bytes, category, name, pointer);
    return take_pages(device, bytes, category, name, pointer);
}

struct pretend_range *pretend_range_find(CUdeviceptr pointer)
{
    struct pretend_range *range = pretend_range_around(pointer);
    if (!range)
        return pretend_host_find(pointer);
    if (range->kind == PRETEND_SLAB)
        return pretend_slab_find(range, pointer);
    if (range->kind == PRETEND_CHUNK)
        return pretend_chunk_find(range, pointer);
    return range->kind == PRETEND_RESERVATION ? NULL : range;
}

static CUresult give(CUdeviceptr pointer)
{
    struct pretend_range *range = pretend_range_find(pointer);
    if (!range || range->base != pointer)
        return CUDA_ERROR_INVALID_VALUE;
    switch (range->kind) {
    case PRETEND_SMALL:
        pretend_slab_give(range);
        return CUDA_SUCCESS;
    case PRETEND_LINEAR:
    case PRETEND_MANAGED:
        if (range->held)
            pretend_discharge(range);
        pretend_range_remove(range);
        pretend_range_drop(range);
        return CUDA_SUCCESS;
    case PRETEND_POOLED:
        pretend_pool_give(range);
        return CUDA_SUCCESS;
    case PRETEND_NODES:
        pretend_graph_memory_give(range);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static void give_small_of(const struct pretend_range *slab, const void *context)
{
    CUdeviceptr from = slab->base;
    CUdeviceptr end = slab->base + slab->span;
    while (from < end) {
        struct pretend_range *small = pretend_slab_next(slab, from);
        if (!small)
            return;
        from = small->base + small->span;
        int is_last = !pretend_slab_next(slab, from);
        if (small->context == context)
            pretend_slab_give(small);
        if (is_last)
            return;
    }
}

/* What the program took in a context goes with it. */
void pretend_memory_ended(struct pretend_context *context)
{
    struct pretend_range *range;
    CUdeviceptr from = 0;
    pretend_lock();
    while ((range = pretend_range_next(context->device, from))) {
        from = range->base + (range->kind == PRETEND_RESERVATION ? PRETEND_PAGE : range->span);
        if (range->kind == PRETEND_SLAB)
            give_small_of(range, context);
        else if (range->context == context)
            give(range->base);
    }
    pretend_unlock();
}

CUresult pretend_memory_take(CUdevice device, uint64_t bytes, enum mt_category category,
                             const char *name, CUdeviceptr *pointer)
{
    if (!pretend_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!bytes || !pointer)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    CUresult result = pretend_linear_take(device, bytes, category, name, pointer);
    pretend_unlock();
    return result;
}

CUresult pretend_memory_give(CUdeviceptr pointer)
{
    if (!pointer)
        return CUDA_SUCCESS;
    pretend_lock();
    CUresult result = give(pointer);
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult pretend_cuda_take(CUdevice device, uint64_t bytes, enum mt_category category,
                                        const char *name, CUdeviceptr *pointer)
{
    CUresult result = pretend_enter();
    return result == CUDA_SUCCESS ? pretend_memory_take(device, bytes, category, name, pointer)
                                  : result;
}

PRETEND_CALL void pretend_cuda_give(CUdeviceptr pointer)
{
    if (pretend_enter() == CUDA_SUCCESS)
        pretend_memory_give(pointer);
}

static _Thread_local struct {
    enum mt_category category;
    const char *name;
} expected;

PRETEND_CALL void pretend_cuda_expect(enum mt_category category, const char *name)
{
    expected.category = category;
    expected.name = name;
}

void pretend_usage_ended(struct pretend_range *pooled)
{
    if (pooled->told)
        pretend_note_part(pretend_place(pooled->device), MT_CATEGORY_NONE, 0,
                          (const void *)(uintptr_t)pooled->told, 0, NULL);
    pooled->told = 0;
}

/* A caller may name a part of an allocation; the account's reader tells the two apart. What lies in
 * a pool the account does not see come and go. */
PRETEND_CALL void pretend_cuda_usage(CUdeviceptr pointer, uint64_t bytes, enum mt_category category,
                                     const char *name)
{
    if (pretend_enter() != CUDA_SUCCESS)
        return;
    pretend_lock();
    struct pretend_range *range = pretend_range_find(pointer);
    if (range && range->device >= 0) {
        if (range->kind == PRETEND_POOLED && range->told != pointer) {
            pretend_usage_ended(range);
            range->told = pointer;
        }
        pretend_note_part(pretend_place(range->device), category, range->taken_ns,
                          (const void *)(uintptr_t)pointer, bytes, name);
    }
    pretend_unlock();
}

/* What a call that takes memory of the current device finds: 0, or what is wrong. */
static CUresult enter_current(CUdevice *device)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    *device = pretend_current_device();
    return pretend_device(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
PRETEND_CALL CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    CUdevice device;
    CUresult result = enter_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!free_bytes || !total_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *free_bytes = pretend_free_bytes(pretend_place(device));
    *total_bytes = pretend_device(device)->total_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
PRETEND_CALL CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    CUdevice device;
    CUresult result = enter_current(&device);
    if (result == CUDA_SUCCESS && !expected.name)
        result = pretend_unsafe_in_capture();
    if (result != CUDA_SUCCESS)
        return result;
    if (!bytes || !pointer)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    result = pretend_linear_take(device, bytes, expected.category,
                                 expected.name ? expected.name : "device memory", pointer);
    if (result == CUDA_SUCCESS)
        pretend_range_find(*pointer)->context = pretend_current();
    pretend_unlock();
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer);
PRETEND_CALL CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    CUresult result = pretend_unsafe_in_capture();
    return result == CUDA_SUCCESS ? pretend_memory_give(pointer) : result;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned element_bytes);
PRETEND_CALL CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width,
                                         size_t height, unsigned element_bytes)
{
    uint64_t bytes;
    if (!pitch || !width || !height || width > SIZE_MAX - PITCH_BYTES ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t row = pretend_round_up(width, PITCH_BYTES);
    if (__builtin_mul_overflow(row, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuMemAlloc_v2(pointer, bytes);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer);
PRETEND_CALL CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    const struct pretend_range *range = pretend_range_find(pointer);
    if (range && base)
        *base = range->base;
    if (range && bytes)
        *bytes = range->bytes;
    pretend_unlock();
    return range ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
