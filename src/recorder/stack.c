/* SPDX-License-Identifier: MIT */
/* Call stacks, by frame pointers or by libunwind, each written once per stream and then named by
 * its number. A frame pointer is followed only within the thread's own stack, so that a value that
 * is none cannot make the recorder read elsewhere. */
#include "recorder/recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include "recorder/real.h"

struct frames {
    uint64_t address[MT_MAX_FRAMES];
    size_t n;
    int complete;
};

/* How far from where a thread begins its first frame with a frame pointer may lie: below libc's
 * starting code, and for other threads than the main one also below libc's own data of the thread.
 */
#define MAIN_START_BYTES   1024u
#define THREAD_START_BYTES 16384u

void stack_find_bounds(void)
{
    struct tls *tls = &memtally_tls;
    pthread_attr_t attributes;
    void *low;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &low, &size) == 0) {
        tls->stack_low = (uintptr_t)low;
        tls->stack_high = (uintptr_t)low + size;
    }
    pthread_attr_destroy(&attributes);
}

/* Whether the frame at `at` was called by the code that starts a thread. libc itself has no frame
 * pointers, so that the chain ends below it; that it ends near the stack's beginning tells this
 * from a function that libc calls back. */
static int at_start(const struct tls *tls, uintptr_t at, uintptr_t caller)
{
    uintptr_t end = memtally_real.stack_end;
    if (caller < memtally_real.libc_low || caller >= memtally_real.libc_high)
        return 0;
    if (end >= tls->stack_low && end < tls->stack_high)
        return at < end && end - at <= MAIN_START_BYTES;
    return tls->stack_high - at <= THREAD_START_BYTES;
}

static int is_frame(const struct tls *tls, uintptr_t at)
{
    return at % sizeof(uintptr_t) == 0 && at >= tls->stack_low && at < tls->stack_high &&
           tls->stack_high - at >= 2 * sizeof(uintptr_t);
}

/* The hook's own frame can be read wherever it is; the chain is followed only where that frame lies
 * on the thread's own stack, and not on that of a fiber or of a signal handler. */
static void walk_frame_pointers(const void *frame, struct frames *frames)
{
    const struct tls *tls = &memtally_tls;
    uintptr_t at = (uintptr_t)frame;
    int own_stack = is_frame(tls, at);
    for (;;) {
        uintptr_t next = ((const uintptr_t *)at)[0];
        uintptr_t caller = ((const uintptr_t *)at)[1];
        if (caller < 4096)
            return;
        frames->address[frames->n++] = caller;
        if (!own_stack)
            return;
        if (next <= at || !is_frame(tls, next) || frames->n == MT_MAX_FRAMES) {
            frames->complete = at_start(tls, at, caller);
            return;
        }
        at = next;
    }
}

/* Drops the recorder's own frames: the first frame kept is the one that called the hook. */
static void walk_unwinder(const void *frame, struct frames *frames)
{
    void *found[MT_MAX_FRAMES + 8];
    int saved_errno = errno;
    int n = memtally_recorder.unwind(found, MT_MAX_FRAMES + 8);
    errno = saved_errno;
    uintptr_t caller = ((const uintptr_t *)frame)[1];
    int first = 0;
    while (first < n && (uintptr_t)found[first] != caller)
        first++;
    if (first == n)
        first = 0;
    for (int i = first; i < n && frames->n < MT_MAX_FRAMES; i++)
        frames->address[frames->n++] = (uint64_t)(uintptr_t)found[i];
    frames->complete =
        frames->n > 0 && n < (int)(MT_MAX_FRAMES + 8) && n - first <= (int)MT_MAX_FRAMES;
}

static uint64_t hash_frames(const struct frames *frames)
{
    uint64_t hash = 0x9e3779b97f4a7c15u ^ (uint64_t)frames->complete;
    for (size_t i = 0; i < frames->n; i++) {
        hash = (hash ^ frames->address[i]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash;
}

/* A full neighbourhood is overwritten: the stack is then written once more under a new number. */
static struct stack_slot *slot_of(struct thread *thread, uint64_t hash)
{
    for (uint32_t probe = 0; probe < 8; probe++) {
        struct stack_slot *slot = &thread->stacks[(hash + probe) % STACK_SLOTS];
        if (!slot->number || slot->hash == hash)
            return slot;
    }
    struct stack_slot *slot = &thread->stacks[hash % STACK_SLOTS];
    slot->number = 0;
    return slot;
}

uint32_t stack_number(struct thread *thread, const void *frame)
{
    struct frames frames = {.n = 0};
    if (memtally_recorder.stacks == MT_STACKS_NONE)
        return 0;
    if (memtally_recorder.unwind)
        walk_unwinder(frame, &frames);
    else
        walk_frame_pointers(frame, &frames);
    if (!frames.n)
        return 0;
    uint64_t hash = hash_frames(&frames);
    struct stack_slot *slot = slot_of(thread, hash);
    if (!slot->number) {
        slot->hash = hash;
        slot->number =
            mt_write_stack(&thread->writer, now_ticks(), frames.address, frames.n, frames.complete);
    }
    return slot->number;
}

static void *symbol(void *library, const char *name)
{
    return memtally_real.dlsym(library, name);
}

/* libunwind's global cache of unwind tables takes a lock; its per-thread cache does not. */
int stacks_load_unwinder(void)
{
    enum { CACHE_PER_THREAD = 2 };
    void *library = memtally_real.dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 0;
    void *backtrace = symbol(library, "unw_backtrace");
    void *policy = symbol(library, "_ULx86_64_set_caching_policy");
    void *space = symbol(library, "_ULx86_64_local_addr_space");
    if (!policy) {
        policy = symbol(library, "_ULaarch64_set_caching_policy");
        space = symbol(library, "_ULaarch64_local_addr_space");
    }
    if (!backtrace)
        return 0;
    if (policy && space) {
        int (*set_policy)(void *space, int policy);
        __builtin_memcpy(&set_policy, &policy, sizeof set_policy);
        set_policy(*(void **)space, CACHE_PER_THREAD);
    }
    __builtin_memcpy(&memtally_recorder.unwind, &backtrace, sizeof backtrace);
    return 1;
}
