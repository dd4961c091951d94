/* SPDX-License-Identifier: MIT */
/* Address space without memory. */
#include "host_memory.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rehearse/account_write.h"

#define RANGES_MAX 1024u

struct range {
    uintptr_t low;
    uintptr_t high; /* 0: free */
};

static struct range ranges[RANGES_MAX];
static uint32_t n_ranges; /* slots that were ever used */

static void add_range(uintptr_t low, uintptr_t high)
{
    for (uint32_t i = 0; i < RANGES_MAX; i++) {
        uintptr_t empty = 0;
        if (!__atomic_compare_exchange_n(&ranges[i].low, &empty, low, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        __atomic_store_n(&ranges[i].high, high, __ATOMIC_RELEASE);
        uint32_t used = __atomic_load_n(&n_ranges, __ATOMIC_RELAXED);
        while (used < i + 1 && !__atomic_compare_exchange_n(&n_ranges, &used, i + 1, 1,
                                                            __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        }
        return;
    }
}

static void drop_range(uintptr_t low)
{
    for (uint32_t i = 0; i < RANGES_MAX; i++)
        if (__atomic_load_n(&ranges[i].low, __ATOMIC_ACQUIRE) == low) {
            __atomic_store_n(&ranges[i].high, 0, __ATOMIC_RELEASE);
            __atomic_store_n(&ranges[i].low, 0, __ATOMIC_RELEASE);
            return;
        }
}

void *host_memory_map(size_t size)
{
    int saved = errno;
    long at = syscall(SYS_mmap, NULL, size, (long)PROT_READ | PROT_WRITE,
                      (long)MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1L, 0L);
    errno = saved;
    if (at == -1)
        return NULL;
    const struct mt_account *account = pretend_account();
    if (account)
        add_range((uintptr_t)at, (uintptr_t)at + size);
    return (void *)at;
}

void host_memory_unmap(void *memory, size_t size)
{
    drop_range((uintptr_t)memory);
    syscall(SYS_munmap, memory, size);
}

int host_memory_owns(const void *address, size_t size)
{
    uintptr_t low = (uintptr_t)address;
    uint32_t used = __atomic_load_n(&n_ranges, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++) {
        uintptr_t high = __atomic_load_n(&ranges[i].high, __ATOMIC_ACQUIRE);
        if (high && low >= __atomic_load_n(&ranges[i].low, __ATOMIC_RELAXED) && low < high &&
            size <= high - low)
            return 1;
    }
    return 0;
}

int host_memory_forget(void *from, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t low = ((uintptr_t)from + page - 1) & ~(page - 1);
    uintptr_t high = ((uintptr_t)from + size) & ~(page - 1);
    int saved = errno;
    if (high <= low || syscall(SYS_madvise, low, high - low, (long)MADV_DONTNEED) != 0) {
        errno = saved;
        return 0;
    }
    memset(from, 0, low - (uintptr_t)from);
    memset((void *)high, 0, (uintptr_t)from + size - high);
    return 1;
}

void host_memory_zero(void *to, size_t size)
{
    if (size < HOST_MEMORY_DROPPED_BYTES || !host_memory_owns(to, size) ||
        !host_memory_forget(to, size))
        memset(to, 0, size);
}

void host_memory_copy(void *to, const void *from, size_t size)
{
    if (size < HOST_MEMORY_DROPPED_BYTES || !host_memory_owns(to, size))
        memcpy(to, from, size);
}
