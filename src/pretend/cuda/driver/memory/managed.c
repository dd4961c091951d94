/* SPDX-License-Identifier: MIT */
/* Managed memory: one address for host and devices. The program itself reads and writes it, so it
 * is true memory of the host where it is touched.
 *
 * Where the pages of it lie follows from what touches them, which a rehearsal does not see. It is
 * counted on the device as if kernels touched all of it, as far as it fits: what does not fit stays
 * with the host, as it does on a true device, which takes more managed memory than it has. So what
 * the account says is an upper bound. */
#include <sys/mman.h>

#include "memory.h"
#include "rehearse/account_write.h"

static CUresult take(int device, uint64_t bytes, unsigned flags, CUdeviceptr *pointer)
{
    struct pretend_range *range = pretend_range_make(PRETEND_MANAGED, device, bytes);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->span = range->held = pretend_round_up(bytes, PRETEND_PAGE);
    range->flags = flags;
    range->context = pretend_current();
    CUresult result = pretend_range_place(range, PRETEND_PAGE, 0);
    if (result == CUDA_SUCCESS && !pretend_written_add(range->base, range->span)) {
        pretend_range_remove(range);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        pretend_range_drop(range);
        return result;
    }
    uint64_t free_bytes = pretend_free_bytes(pretend_place(device));
    if (range->held > free_bytes)
        range->held = free_bytes / PRETEND_PAGE * PRETEND_PAGE;
    if (range->held && pretend_charge(range, bytes, "managed memory") != CUDA_SUCCESS)
        range->held = 0;
    *pointer = range->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags);
PRETEND_CALL CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    static int is_told;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    CUdevice device = pretend_current_device();
    if (device < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!pointer || !bytes ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
         flags != CU_MEM_ATTACH_SINGLE))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > PRETEND_ADDRESSES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pretend_lock();
    result = take(device, bytes, flags, pointer);
    pretend_unlock();
    if (result == CUDA_SUCCESS && !__atomic_exchange_n(&is_told, 1, __ATOMIC_RELAXED))
        pretend_note("Managed memory is counted on its device as if kernels touched all of it: an "
                     "upper bound.");
    return result;
}

/* Whether all of it is managed memory, or such as the host may read. */
static CUresult check(CUdeviceptr pointer, uint64_t bytes)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    const struct pretend_range *range = pretend_range_find(pointer);
    if (!range || !bytes || range->kind != PRETEND_MANAGED ||
        bytes > range->base + range->bytes - pointer)
        result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    return result;
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device);
PRETEND_CALL CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device)
{
    (void)device;
    return advice < 1 || advice > 6 ? CUDA_ERROR_INVALID_VALUE : check(pointer, bytes);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation location);
PRETEND_CALL CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice,
                                     CUmemLocation location)
{
    return cuMemAdvise(pointer, bytes, advice, location.id);
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream);
PRETEND_CALL CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device,
                                         CUstream stream)
{
    (void)stream;
    return device != -1 && !pretend_device(device) ? CUDA_ERROR_INVALID_DEVICE
                                                   : check(pointer, bytes);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation location,
                               unsigned flags, CUstream stream);
PRETEND_CALL CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes,
                                            CUmemLocation location, unsigned flags, CUstream stream)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return cuMemPrefetchAsync(
        pointer, bytes, location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1, stream);
}
