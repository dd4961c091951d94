/* SPDX-License-Identifier: MIT */
/* Large blocks on the heap: the caches of a server are ordinary vectors of its own. We count and
 * refuse them, and leave them where the program's allocator puts them. If the program clears such a
 * block, we give its pages back instead: they would be zeros too. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks.h"
#include "host_memory.h"
#include "rehearse/account_note.h"
#include "rehearse/account_write.h"

#define EARLY_BYTES 65536u
#define SETS        4096u
#define WAYS        4u          /* one cache line */
#define EVENTS_FEW  16384u      /* so many blocks of any size are noted; then only */
#define FEW_BYTES   (16u << 20) /* such as these */
#define EVENTS_MOST 65536u

enum { UNKNOWN, LOOKED_UP, KNOWN };
static struct {
    uint32_t state;   /* one of the above */
    uint32_t is_libc; /* memory is private and anonymous */
    void *(*malloc)(size_t size);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *address, size_t size);
    void (*free)(void *address);
    void *(*memalign)(size_t alignment, size_t size);
    void *(*aligned_alloc)(size_t alignment, size_t size);
    int (*posix_memalign)(void **result, size_t alignment, size_t size);
    void *(*memset)(void *to, int value, size_t size);
    void *(*memcpy)(void *to, const void *from, size_t size);
} next;

/* Memory for callers before we know the real functions; dlsym itself may be one. Never given back.
 */
static struct {
    size_t used;
    _Alignas(64) char bytes[EARLY_BYTES];
} early;

/* Live large blocks. A forked child finds this memory empty, because its parent holds the blocks.
 */
struct block {
    void *address;
    uint64_t bytes;
};
static struct block (*blocks)[WAYS];
static uint32_t n_blocks;
static uint32_t n_events;

static void *early_alloc(size_t size)
{
    size_t start = __atomic_fetch_add(&early.used, (size + 63) & ~(size_t)63, __ATOMIC_RELAXED);
    if (size > EARLY_BYTES || start > EARLY_BYTES - size) {
        errno = ENOMEM;
        return NULL;
    }
    return early.bytes + start;
}

static int is_early(const void *address)
{
    return (uintptr_t)address - (uintptr_t)early.bytes < EARLY_BYTES;
}

static void find(void *slot, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    __builtin_memcpy(slot, &found, sizeof found);
}

static void look_up(void)
{
    find(&next.malloc, "malloc");
    find(&next.calloc, "calloc");
    find(&next.realloc, "realloc");
    find(&next.free, "free");
    find(&next.memalign, "memalign");
    find(&next.aligned_alloc, "aligned_alloc");
    find(&next.posix_memalign, "posix_memalign");
    find(&next.memset, "memset");
    find(&next.memcpy, "memcpy");
}

static int is_ready(void)
{
    uint32_t unknown = UNKNOWN;
    if (__builtin_expect(__atomic_load_n(&next.state, __ATOMIC_ACQUIRE) == KNOWN, 1))
        return 1;
    if (!__atomic_compare_exchange_n(&next.state, &unknown, LOOKED_UP, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE))
        return unknown == KNOWN;
    look_up();
    __atomic_store_n(&next.state, KNOWN, __ATOMIC_RELEASE);
    return 1;
}

static const void *module_of(const void *slot)
{
    void *function;
    Dl_info info;
    __builtin_memcpy(&function, slot, sizeof function);
    return dladdr(function, &info) ? info.dli_fbase : NULL;
}

void hooks_heap_start(void)
{
    if (!rehearsal() || !is_ready())
        return;
    void (*of_libc)(void) = abort;
    next.is_libc = module_of(&next.malloc) == module_of(&of_libc);
    size_t size = SETS * sizeof *blocks;
    void *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made != MAP_FAILED && syscall(SYS_madvise, made, size, (long)MADV_WIPEONFORK) == 0)
        __atomic_store_n(&blocks, made, __ATOMIC_RELEASE);
}

static struct block *set_of(const void *address)
{
    uint64_t hash = ((uint64_t)(uintptr_t)address >> 4) * 0x9E3779B97F4A7C15u;
    return blocks[hash >> 52];
}

/* A process on CUDA that has no ggml in it has a heap that says nothing of an engine. */
static int is_anothers(void)
{
    const struct mt_account *account = pretend_account();
    return account && account->cuda.driver_version &&
           !__atomic_load_n(&account->n_attached, __ATOMIC_RELAXED);
}

/* Whether a block is large enough to be counted, by its size and by how many were. */
static int is_counted(size_t size)
{
    if (__builtin_expect(size < LARGE_BYTES, 1) || !__atomic_load_n(&blocks, __ATOMIC_ACQUIRE) ||
        hook_thread()->is_uncounted || is_anothers())
        return 0;
    uint32_t events = __atomic_load_n(&n_events, __ATOMIC_RELAXED);
    return events < EVENTS_FEW || (size >= FEW_BYTES && events < EVENTS_MOST);
}

static enum mt_category category_of(size_t size, const char **detail)
{
    const struct hook_thread *thread = hook_thread();
    int is_state = 0;
    for (unsigned i = 0; i < STATES_MAX; i++)
        is_state |= thread->state_bytes[i] == size;
    *detail = is_state ? "copy of a state" : "heap block";
    return is_state ? MT_CATEGORY_KV_CACHE : MT_CATEGORY_RUNTIME;
}

/* Whether there is room for a block; where not, errno says so. */
static int take(size_t size)
{
    uint64_t free_bytes = 0;
    const char *detail;
    if (pretend_take(MT_ACCOUNT_HOST, size, &free_bytes))
        return 1;
    enum mt_category category = category_of(size, &detail);
    pretend_note_refuse(MT_ACCOUNT_HOST, category, size, free_bytes, "heap", detail);
    errno = ENOMEM;
    return 0;
}

static void *keep(void *address, size_t size)
{
    const char *detail;
    struct block *set = set_of(address);
    for (uint32_t i = 0; address && i < WAYS; i++) {
        void *empty = NULL;
        if (!__atomic_compare_exchange_n(&set[i].address, &empty, address, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        set[i].bytes = size;
        __atomic_fetch_add(&n_blocks, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&n_events, 2, __ATOMIC_RELAXED);
        enum mt_category category = category_of(size, &detail);
        pretend_note_alloc(MT_ACCOUNT_HOST, category, 0, address, size, "heap", detail);
        return address;
    }
    pretend_give_back(MT_ACCOUNT_HOST, size);
    return address;
}

static struct block *block_at(const void *address)
{
    if (!__atomic_load_n(&n_blocks, __ATOMIC_RELAXED))
        return NULL;
    struct block *set = set_of(address);
    for (uint32_t i = 0; i < WAYS; i++)
        if (__atomic_load_n(&set[i].address, __ATOMIC_ACQUIRE) == address)
            return &set[i];
    return NULL;
}

static void let_go(void *address)
{
    struct block *block = address ? block_at(address) : NULL;
    if (!block)
        return;
    uint64_t bytes = block->bytes;
    __atomic_store_n(&block->address, NULL, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&n_blocks, 1, __ATOMIC_RELAXED);
    pretend_note_free(MT_ACCOUNT_HOST, address, bytes);
    pretend_give_back(MT_ACCOUNT_HOST, bytes);
}

EXPORTED void *malloc(size_t size)
{
    if (!is_ready())
        return early_alloc(size);
    if (!is_counted(size) || hook_thread()->is_roomy)
        return next.malloc(size);
    return take(size) ? keep(next.malloc(size), size) : NULL;
}

EXPORTED void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!is_ready())
        return __builtin_mul_overflow(count, size, &bytes) ? NULL : early_alloc(bytes);
    if (__builtin_mul_overflow(count, size, &bytes) || !is_counted(bytes))
        return next.calloc(count, size);
    return take(bytes) ? keep(next.calloc(count, size), bytes) : NULL;
}

EXPORTED void free(void *address)
{
    if (is_early(address) || !is_ready())
        return;
    let_go(address);
    next.free(address);
}

static void *move_early(const void *address, size_t size)
{
    size_t room = (size_t)(early.bytes + EARLY_BYTES - (const char *)address);
    void *moved = malloc(size);
    if (moved)
        memcpy(moved, address, size < room ? size : room);
    return moved;
}

EXPORTED void *realloc(void *address, size_t size)
{
    if (address && (is_early(address) || !is_ready()))
        return move_early(address, size);
    if (!is_ready())
        return early_alloc(size);
    struct block *block = address ? block_at(address) : NULL;
    uint64_t old_bytes = block ? block->bytes : 0;
    int is_taken = is_counted(size);
    if (is_taken && !take(size))
        return NULL;
    let_go(address);
    void *moved = next.realloc(address, size);
    if (!moved && size && block && pretend_take(MT_ACCOUNT_HOST, old_bytes, &(uint64_t){0}))
        keep(address, old_bytes);
    if (is_taken)
        moved ? (void)keep(moved, size) : pretend_give_back(MT_ACCOUNT_HOST, size);
    return moved;
}

EXPORTED void *memalign(size_t alignment, size_t size)
{
    if (!is_ready())
        return NULL;
    if (!is_counted(size))
        return next.memalign(alignment, size);
    return take(size) ? keep(next.memalign(alignment, size), size) : NULL;
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
    if (!is_ready())
        return NULL;
    if (!is_counted(size))
        return next.aligned_alloc(alignment, size);
    return take(size) ? keep(next.aligned_alloc(alignment, size), size) : NULL;
}

EXPORTED int posix_memalign(void **result, size_t alignment, size_t size)
{
    int saved = errno;
    if (!is_ready())
        return ENOMEM;
    if (!is_counted(size) || hook_thread()->is_roomy)
        return next.posix_memalign(result, alignment, size);
    if (!take(size)) {
        errno = saved;
        return ENOMEM;
    }
    int code = next.posix_memalign(result, alignment, size);
    if (code == 0)
        keep(*result, size);
    else
        pretend_give_back(MT_ACCOUNT_HOST, size);
    return code;
}

/* Whether a range lies in one large block. What is cleared is seldom so large that the whole table
 * is searched. */
static int is_in_block(const void *from, size_t size)
{
    uintptr_t low = (uintptr_t)from;
    if (!next.is_libc || !__atomic_load_n(&n_blocks, __ATOMIC_RELAXED))
        return 0;
    for (uint32_t set = 0; set < SETS; set++)
        for (uint32_t i = 0; i < WAYS; i++) {
            uintptr_t start = (uintptr_t)__atomic_load_n(&blocks[set][i].address, __ATOMIC_ACQUIRE);
            uint64_t bytes = blocks[set][i].bytes;
            if (start && low >= start && low - start < bytes && size <= bytes - (low - start))
                return 1;
        }
    return 0;
}

/* Clearing within a large block, or memory that is only address space. */
static int forget_instead(void *to, int value, size_t size)
{
    if (value || !rehearsal())
        return 0;
    if (!is_in_block(to, size) && !host_memory_owns(to, size))
        return 0;
    return host_memory_forget(to, size);
}

EXPORTED void *memset(void *to, int value, size_t size)
{
    if (__builtin_expect(size >= LARGE_BYTES, 0) && is_ready() && forget_instead(to, value, size))
        return to;
    if (__builtin_expect(next.memset != NULL, 1))
        return next.memset(to, value, size);
    for (volatile char *at = to; size; size--)
        *at++ = (char)value;
    return to;
}

EXPORTED void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    if (__builtin_expect(size >= HOST_MEMORY_DROPPED_BYTES, 0) && host_memory_owns(to, size))
        return to;
    if (__builtin_expect(next.memcpy != NULL, 1))
        return next.memcpy(to, from, size);
    volatile char *at = to;
    for (const char *byte = from; size; size--)
        *at++ = *byte++;
    return to;
}
