/* SPDX-License-Identifier: MIT */
/* malloc and its kind for a program into which the library is preloaded: large blocks come from the
 * pool, all others from the allocator behind. A block that realloc() makes larger goes over to that
 * one, which moves pages where a pool would have to copy. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pool/plugin/host.h"

#define EXPORT      __attribute__((visibility("default")))
#define EARLY_BYTES 65536u
#define ALIGN       512u
#define KERNEL_PAGE 4096u

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
    void (*free)(void *);
    size_t (*usable)(void *);
    int (*trim)(size_t);
} real;

/* Memory for what the loader itself takes while it looks the functions up. Never given back. */
static struct {
    _Alignas(64) char bytes[EARLY_BYTES];
    _Atomic size_t used;
} early;

static _Atomic int state; /* 0: nothing is looked up, 1: a thread looks, 2: all is there */
static _Thread_local int is_looking __attribute__((tls_model("initial-exec")));

static void *early_take(size_t alignment, size_t bytes)
{
    if (bytes > EARLY_BYTES || alignment > EARLY_BYTES)
        return NULL;
    size_t take = bytes + alignment + 64;
    size_t at = atomic_fetch_add(&early.used, take);
    if (at + take > EARLY_BYTES)
        return NULL;
    uintptr_t address = (uintptr_t)(early.bytes + at) + 63;
    alignment = alignment < 64 ? 64 : alignment;
    return (void *)(address & ~(uintptr_t)(alignment - 1));
}

static int is_early(const void *block)
{
    return (uintptr_t)block - (uintptr_t)early.bytes < EARLY_BYTES;
}

static void find(void *slot, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(slot, &found, sizeof found);
}

/* 1 once the functions behind are known; 0 for calls that come from looking them up. */
static int is_ready(void)
{
    if (atomic_load_explicit(&state, memory_order_acquire) == 2)
        return 1;
    int none = 0;
    if (is_looking)
        return 0;
    if (atomic_compare_exchange_strong(&state, &none, 1)) {
        is_looking = 1;
        find(&real.malloc, "malloc");
        find(&real.calloc, "calloc");
        find(&real.realloc, "realloc");
        find(&real.memalign, "memalign");
        find(&real.free, "free");
        find(&real.usable, "malloc_usable_size");
        find(&real.trim, "malloc_trim");
        is_looking = 0;
        atomic_store_explicit(&state, 2, memory_order_release);
        return 1;
    }
    while (atomic_load_explicit(&state, memory_order_acquire) != 2)
        ;
    return 1;
}

/* What follows calls these and not each other by name, which may be another library's. */
static void *take(size_t bytes)
{
    if (!is_ready())
        return early_take(64, bytes);
    void *block = mt_pool_host_wants(bytes) ? mt_pool_host_take(bytes) : NULL;
    return block ? block : real.malloc(bytes);
}

static void give(void *block)
{
    int kept = errno;
    if (mt_pool_host_has(block))
        mt_pool_host_give(block);
    else if (!is_early(block) && is_ready())
        real.free(block);
    errno = kept;
}

EXPORT void *malloc(size_t bytes)
{
    return take(bytes);
}

EXPORT void free(void *block)
{
    give(block);
}

EXPORT void free_sized(void *block, size_t bytes);
EXPORT void free_sized(void *block, size_t bytes)
{
    (void)bytes;
    give(block);
}

EXPORT void free_aligned_sized(void *block, size_t alignment, size_t bytes);
EXPORT void free_aligned_sized(void *block, size_t alignment, size_t bytes)
{
    (void)alignment;
    (void)bytes;
    give(block);
}

/* What was used before becomes pages that are not there until they are touched, as a program that
 * asks for much and uses little expects. */
static void clear(char *block, size_t bytes)
{
    uintptr_t begin = ((uintptr_t)block + KERNEL_PAGE - 1) & ~(uintptr_t)(KERNEL_PAGE - 1);
    uintptr_t end = ((uintptr_t)block + bytes) & ~(uintptr_t)(KERNEL_PAGE - 1);
    if (madvise((void *)begin, end - begin, MADV_DONTNEED) != 0)
        begin = end = (uintptr_t)block + bytes;
    memset(block, 0, begin - (uintptr_t)block);
    memset((void *)end, 0, (uintptr_t)block + bytes - end);
}

EXPORT void *calloc(size_t n, size_t each)
{
    size_t bytes;
    if (!is_ready())
        return early_take(64, n * each);
    int kept = errno;
    void *block = NULL;
    if (!__builtin_mul_overflow(n, each, &bytes) && mt_pool_host_wants(bytes))
        block = mt_pool_host_take(bytes);
    if (!block)
        return real.calloc(n, each);
    clear(block, bytes);
    errno = kept;
    return block;
}

static void *over_to_real(void *block, size_t had, size_t bytes)
{
    void *moved = real.malloc(bytes);
    if (moved) {
        memcpy(moved, block, had < bytes ? had : bytes);
        give(block);
    }
    return moved;
}

static void *resize(void *block, size_t bytes)
{
    if (!block)
        return take(bytes);
    if (is_early(block)) {
        size_t left = (size_t)(early.bytes + EARLY_BYTES - (char *)block);
        void *moved = take(bytes);
        return moved ? memcpy(moved, block, left < bytes ? left : bytes) : NULL;
    }
    if (!mt_pool_host_has(block))
        return is_ready() ? real.realloc(block, bytes) : NULL;
    if (!bytes) {
        give(block);
        return NULL;
    }
    size_t had = mt_pool_host_usable(block);
    return bytes <= had && bytes > had / 2 ? block : over_to_real(block, had, bytes);
}

EXPORT void *realloc(void *block, size_t bytes)
{
    return resize(block, bytes);
}

EXPORT void *reallocarray(void *block, size_t n, size_t each)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, each, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return resize(block, bytes);
}

static void *aligned(size_t alignment, size_t bytes)
{
    if (!is_ready())
        return early_take(alignment, bytes);
    void *block = alignment <= ALIGN && mt_pool_host_wants(bytes) ? mt_pool_host_take(bytes) : NULL;
    return block ? block : real.memalign(alignment, bytes);
}

EXPORT void *memalign(size_t alignment, size_t bytes)
{
    return aligned(alignment, bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
    return aligned(alignment, bytes);
}

EXPORT int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    if (alignment % sizeof(void *) || !alignment || alignment & (alignment - 1))
        return EINVAL;
    int kept = errno;
    void *taken = aligned(alignment, bytes);
    errno = kept;
    if (!taken)
        return ENOMEM;
    *block = taken;
    return 0;
}

EXPORT void *valloc(size_t bytes)
{
    return aligned(KERNEL_PAGE, bytes);
}

EXPORT void *pvalloc(size_t bytes)
{
    size_t whole = (bytes + KERNEL_PAGE - 1) & ~(size_t)(KERNEL_PAGE - 1);
    return whole < bytes ? NULL : aligned(KERNEL_PAGE, whole);
}

EXPORT size_t malloc_usable_size(void *block)
{
    if (mt_pool_host_has(block))
        return mt_pool_host_usable(block);
    return is_early(block) || !is_ready() ? 0 : real.usable(block);
}

EXPORT int malloc_trim(size_t pad)
{
    int any = mt_pool_host_trim();
    return (is_ready() && real.trim && real.trim(pad)) | any;
}
