/* SPDX-License-Identifier: MIT */
/* Host memory that the driver pins: its own, which is true memory that the program writes, and
 * what the program registers. The account has both at the host. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bisect.h"
#include "memory.h"
#include "rehearse/account_note.h"
#include "rehearse/account_write.h"

#define HOST_PAGE 4096u

/* In the order of their addresses. */
static struct {
    struct pretend_range **range;
    size_t n, capacity;
} known;

/* How many begin at `pointer` or below. */
static size_t count_up_to(CUdeviceptr pointer)
{
    struct mt_bisect place = {.end = known.n};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, known.range[place.middle]->base <= pointer);
    return place.first;
}

struct pretend_range *pretend_host_find(CUdeviceptr pointer)
{
    size_t at = count_up_to(pointer);
    struct pretend_range *range = at ? known.range[at - 1] : NULL;
    return range && pointer - range->base < range->bytes ? range : NULL;
}

static int is_free(CUdeviceptr pointer, uint64_t bytes)
{
    size_t at = count_up_to(pointer + bytes - 1);
    return !at || known.range[at - 1]->base + known.range[at - 1]->bytes <= pointer;
}

static int grow(void)
{
    if (known.n < known.capacity)
        return 1;
    size_t capacity = known.capacity ? known.capacity * 2 : 256;
    struct pretend_range **range = realloc(known.range, capacity * sizeof(struct pretend_range *));
    if (!range)
        return 0;
    known.range = range;
    known.capacity = capacity;
    return 1;
}

static void insert(struct pretend_range *range)
{
    size_t at = count_up_to(range->base);
    memmove(known.range + at + 1, known.range + at, (known.n - at) * sizeof *known.range);
    known.range[at] = range;
    known.n++;
}

static void take_out(const struct pretend_range *range)
{
    size_t at = count_up_to(range->base);
    memmove(known.range + at - 1, known.range + at, (known.n - at) * sizeof *known.range);
    known.n--;
}

/* Counts the bytes at the host and knows the range from now on. */
static CUresult know(enum pretend_range_kind kind, void *at, uint64_t bytes, unsigned flags,
                     const char *name)
{
    uint64_t free_bytes;
    int device = pretend_current_device() < 0 ? 0 : pretend_current_device();
    uint64_t held = pretend_round_up(bytes, HOST_PAGE);
    struct pretend_range *range = grow() ? pretend_range_make(kind, device, bytes) : NULL;
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!pretend_take(MT_ACCOUNT_HOST, held, &free_bytes)) {
        pretend_note_refuse(MT_ACCOUNT_HOST, MT_CATEGORY_NONE, bytes, free_bytes, name, NULL);
        pretend_range_drop(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->base = (uint64_t)(uintptr_t)at;
    range->span = range->held = held;
    range->flags = flags;
    insert(range);
    pretend_note_alloc(MT_ACCOUNT_HOST, MT_CATEGORY_NONE, MT_ACCOUNT_PINNED, at, held, name, NULL);
    return CUDA_SUCCESS;
}

static void forget(struct pretend_range *range)
{
    take_out(range);
    pretend_note_free(MT_ACCOUNT_HOST, (const void *)(uintptr_t)range->base, range->held);
    pretend_give_back(MT_ACCOUNT_HOST, range->held);
    if (range->kind == PRETEND_PINNED)
        munmap((void *)(uintptr_t)range->base, range->span);
    pretend_range_drop(range);
}

static CUresult enter_context(void)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return pretend_current_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags);
PRETEND_CALL CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    CUresult result = enter_context();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || !bytes || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > SIZE_MAX / 2)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t span = pretend_round_up(bytes, HOST_PAGE);
    void *at = pretend_system.map(NULL, span, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pretend_lock();
    result = know(PRETEND_PINNED, at, bytes, flags, "pinned memory");
    pretend_unlock();
    if (result != CUDA_SUCCESS)
        munmap(at, span);
    else
        *pointer = at;
    return result;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes);
PRETEND_CALL CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return cuMemHostAlloc(pointer, bytes, 0);
}

static CUresult end(void *pointer, enum pretend_range_kind kind, CUresult otherwise)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_range *range = pretend_host_find((uint64_t)(uintptr_t)pointer);
    if (range && range->kind == kind && range->base == (uint64_t)(uintptr_t)pointer)
        forget(range);
    else
        result = otherwise;
    pretend_unlock();
    return result;
}

CUresult cuMemFreeHost(void *pointer);
PRETEND_CALL CUresult cuMemFreeHost(void *pointer)
{
    return pointer ? end(pointer, PRETEND_PINNED, CUDA_ERROR_INVALID_VALUE) : pretend_enter();
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags);
PRETEND_CALL CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
    CUdeviceptr at = (uint64_t)(uintptr_t)pointer;
    CUresult result = enter_context();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || !bytes || flags > 15 || at + bytes < at)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    if (!is_free(at, bytes))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else
        result = know(PRETEND_REGISTERED, pointer, bytes, flags, "registered memory");
    pretend_unlock();
    return result;
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned flags);
PRETEND_CALL CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    return cuMemHostRegister_v2(pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void *pointer);
PRETEND_CALL CUresult cuMemHostUnregister(void *pointer)
{
    return pointer ? end(pointer, PRETEND_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
                   : CUDA_ERROR_INVALID_VALUE;
}

/* With unified addresses a device sees host memory where the host does. */
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_pointer, void *pointer, unsigned flags);
PRETEND_CALL CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_pointer, void *pointer,
                                                   unsigned flags)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!device_pointer || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    if (pretend_host_find((uint64_t)(uintptr_t)pointer))
        *device_pointer = (uint64_t)(uintptr_t)pointer;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    return result;
}

/* The driver's own memory is mapped for devices, whether or not the program asked for that. */
CUresult cuMemHostGetFlags(unsigned *flags, void *pointer);
PRETEND_CALL CUresult cuMemHostGetFlags(unsigned *flags, void *pointer)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    const struct pretend_range *range = pretend_host_find((uint64_t)(uintptr_t)pointer);
    if (flags && range && range->kind == PRETEND_PINNED)
        *flags = range->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    return result;
}
