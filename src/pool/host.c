/* SPDX-License-Identifier: MIT */
/* Host memory as a backend. A page has no name of its own here: to detach it gives it back to the
 * kernel, to attach one lets the kernel put one there at the first touch. */
#include <memtally/error_code.h>
#include <memtally/pool.h>

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fail_errno.h"

#define PAGE_BYTES ((uint64_t)2 << 20)

static int reserve(void *context, uint64_t bytes, uint64_t *address)
{
    (void)context;
    size_t length = (size_t)(bytes + PAGE_BYTES);
    char *range = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return mt_code_of_errno(errno);
    uint64_t begin = ((uint64_t)(uintptr_t)range + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    uint64_t before = begin - (uint64_t)(uintptr_t)range;
    if (before)
        munmap(range, (size_t)before);
    munmap(range + before + bytes, (size_t)(PAGE_BYTES - before));
    *address = begin;
    return MT_OK;
}

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static void unreserve(void *context, uint64_t address, uint64_t bytes)
{
    (void)context;
    munmap(pointer(address), (size_t)bytes);
}

static int create(void *context, uint64_t *page)
{
    (void)context;
    *page = 0;
    return MT_OK;
}

static void destroy(void *context, uint64_t page)
{
    (void)context;
    (void)page;
}

static int attach(void *context, uint64_t address, uint64_t page)
{
    (void)context;
    (void)address;
    (void)page;
    return MT_OK;
}

static int enable(void *context, uint64_t address, uint64_t bytes)
{
    (void)context;
    if (mprotect(pointer(address), (size_t)bytes, PROT_READ | PROT_WRITE) != 0)
        return mt_code_of_errno(errno);
    madvise(pointer(address), (size_t)bytes, MADV_HUGEPAGE); /* a kernel may have none */
    return MT_OK;
}

static int detach(void *context, uint64_t address, uint64_t page)
{
    (void)context;
    (void)page;
    return madvise(pointer(address), (size_t)PAGE_BYTES, MADV_DONTNEED) == 0
               ? MT_OK
               : mt_code_of_errno(errno);
}

static int copy(void *context, uint64_t address, void *host, uint64_t bytes, int is_back)
{
    (void)context;
    memcpy(is_back ? pointer(address) : host, is_back ? host : pointer(address), (size_t)bytes);
    return MT_OK;
}

const struct mt_pool_backend *mt_pool_host_backend(void)
{
    static const struct mt_pool_backend backend = {.page_bytes = PAGE_BYTES,
                                                   .reserve = reserve,
                                                   .unreserve = unreserve,
                                                   .create = create,
                                                   .destroy = destroy,
                                                   .attach = attach,
                                                   .enable = enable,
                                                   .detach = detach,
                                                   .copy = copy};
    return &backend;
}
