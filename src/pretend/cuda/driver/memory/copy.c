/* SPDX-License-Identifier: MIT */
/* What copies and sets do. Small ones really happen, so that small numbers survive; of large ones
 * the memory of the device reads as zeros afterwards, and so does what is copied from there. */
#include "copy.h"

#include <string.h>
#include <sys/mman.h>

#define SMALL_RESULT_BYTES 64u
#define HOST_PAGE          4096u
#define LOOKED_AT_ONCE     1024u /* pages of the host */

static __thread int hidden; /* what pretend_cuda_hide() was told */

/* What is known of an end of a copy. */
struct end {
    CUdeviceptr at;
    int device;    /* -1: memory of the host */
    int is_shared; /* others write there */
};

/* Whether all of [pointer, pointer + bytes) may be touched by a device; several maps may lie side
 * by side. */
static CUresult look(CUdeviceptr pointer, uint64_t bytes, int writes, struct end *end)
{
    const int wanted = writes ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    *end = (struct end){pointer, pretend_space_at(pointer), 0};
    if (end->device < 0)
        return pointer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = pointer; at < pointer + bytes;) {
        const struct pretend_range *range = pretend_range_find(at);
        if (!range || (range->access & wanted) != wanted)
            return CUDA_ERROR_INVALID_VALUE;
        end->is_shared |= range->is_shared;
        at = range->base + range->span;
    }
    return CUDA_SUCCESS;
}

static uint64_t small_bytes(void)
{
    const struct mt_account_cuda *cuda = pretend_cuda_account();
    return cuda ? cuda->copy_bytes_most : 0;
}

/* Fresh pages of the host are zeros already and stay unused; others are written. */
static void zero_host(CUdeviceptr at, uint64_t bytes)
{
    unsigned char is_there[LOOKED_AT_ONCE];
    const CUdeviceptr end = at + bytes;
    while (at < end) {
        CUdeviceptr first = at / HOST_PAGE * HOST_PAGE;
        CUdeviceptr last = first + LOOKED_AT_ONCE * HOST_PAGE;
        last = last < end ? last : end;
        int failed = mincore((void *)(uintptr_t)first, last - first, is_there);
        for (uint64_t i = 0; first + i * HOST_PAGE < last; i++) {
            CUdeviceptr page = first + i * HOST_PAGE;
            CUdeviceptr to = page + HOST_PAGE < last ? page + HOST_PAGE : last;
            CUdeviceptr from = page > at ? page : at;
            if (failed || is_there[i] & 1)
                memset((void *)(uintptr_t)from, 0, to - from);
        }
        at = last;
    }
}

/* Small results that a program reads decide what it does next, and kernels do nothing here. */
static void count_read_back(const struct end *to, const struct end *from, uint64_t bytes)
{
    struct mt_account_cuda *cuda = pretend_cuda_account();
    if (cuda && bytes <= SMALL_RESULT_BYTES && to->device < 0 && from->device >= 0)
        __atomic_fetch_add(&cuda->n_read_back, 1, __ATOMIC_RELAXED);
}

static int is_known(const struct end *end, uint64_t bytes)
{
    return end->is_shared ||
           (pretend_written_has(end->at, bytes) && pretend_space_open(end->at, bytes));
}

/* Returns 1 where the bytes are to be moved, 0 where the copy is done with. */
static int prepare(const struct end *to, const struct end *from, uint64_t bytes)
{
    int is_small = bytes <= small_bytes();
    int reads = from->device < 0 ||
                (is_small && pretend_space_is_backed(from->at) && is_known(from, bytes));
    if (to->device < 0) {
        int moves = from->device < 0 || (reads && is_small && !hidden);
        if (!moves)
            zero_host(to->at, bytes);
        if (!moves && hidden == PRETEND_HIDDEN_BUT_TRUE && bytes == 1) {
            *(unsigned char *)(uintptr_t)to->at = 1;
            hidden = PRETEND_HIDDEN;
        }
        return moves;
    }
    if (!pretend_space_is_backed(to->at))
        return 0;
    if (is_small && reads && (to->is_shared || pretend_written_add(to->at, bytes)))
        return 1;
    if (!to->is_shared)
        pretend_written_clear(to->at, bytes);
    return 0;
}

PRETEND_CALL void pretend_cuda_hide(int how)
{
    hidden = how;
}

PRETEND_CALL void pretend_cuda_wrote(CUdeviceptr pointer, uint64_t bytes)
{
    struct end end;
    pretend_lock();
    if (bytes && look(pointer, bytes, 1, &end) == CUDA_SUCCESS && end.device >= 0 &&
        !end.is_shared && pretend_space_is_backed(pointer))
        pretend_written_add(pointer, bytes);
    pretend_unlock();
}

CUresult pretend_copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    struct end target, source;
    int moves = 0;
    if (!bytes)
        return CUDA_SUCCESS;
    if (to + bytes < to || from + bytes < from)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    CUresult result = look(to, bytes, 1, &target);
    if (result == CUDA_SUCCESS)
        result = look(from, bytes, 0, &source);
    if (result == CUDA_SUCCESS) {
        count_read_back(&target, &source, bytes);
        moves = prepare(&target, &source, bytes);
    }
    pretend_unlock();
    if (moves)
        memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return result;
}

static void fill(CUdeviceptr to, uint32_t value, uint64_t element_bytes, uint64_t n)
{
    unsigned char *at = (unsigned char *)(uintptr_t)to;
    if (element_bytes == 1)
        memset(at, (int)(value & 0xFF), n);
    for (uint64_t i = 0; element_bytes > 1 && i < n; i++)
        memcpy(at + i * element_bytes, &value, element_bytes);
}

CUresult pretend_set(CUdeviceptr to, uint32_t value, uint64_t element_bytes, uint64_t n)
{
    struct end end;
    uint64_t bytes;
    int sets = 0;
    if (__builtin_mul_overflow(n, element_bytes, &bytes) || to + bytes < to || to % element_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!bytes)
        return CUDA_SUCCESS;
    pretend_lock();
    CUresult result = look(to, bytes, 1, &end);
    if (result == CUDA_SUCCESS && end.device < 0)
        sets = 1;
    else if (result == CUDA_SUCCESS && pretend_space_is_backed(to)) {
        sets = bytes <= small_bytes() && (value || end.is_shared) &&
               (end.is_shared || pretend_written_add(to, bytes));
        if (!sets && !end.is_shared)
            pretend_written_clear(to, bytes);
    }
    pretend_unlock();
    if (sets)
        fill(to, value, element_bytes, n);
    return result;
}
