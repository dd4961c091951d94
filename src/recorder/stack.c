/* SPDX-License-Identifier: MIT */
/* Call stacks, by frame pointers or by libunwind, each written once per stream and then named by
 * its number. A frame pointer is followed only within the thread's own stack, so that a value that
 * is none cannot make the recorder read elsewhere. */
#include "recorder/recorder.h"

#include <dlfcn.h>

#include "recorder/real.h"

struct frames {
    uint64_t address[MT_MAX_FRAMES];
    size_t n;
    int complete;
};

static void walk_frame_pointers(const struct thread *thread, const void *frame,
                                struct frames *frames)
{
    uintptr_t at = (uintptr_t)frame;
    uintptr_t high = thread->stack_high;
    while (frames->n < MT_MAX_FRAMES) {
        if (at % sizeof(uintptr_t) || at >= high || high - at < 2 * sizeof(uintptr_t))
            return;
        uintptr_t next = ((const uintptr_t *)at)[0];
        uintptr_t caller = ((const uintptr_t *)at)[1];
        if (caller < 4096) {
            frames->complete = caller == 0;
            return;
        }
        frames->address[frames->n++] = caller;
        if (next == 0) {
            frames->complete = 1;
            return;
        }
        if (next <= at)
            return;
        at = next;
    }
}

/* Drops the recorder's own frames: the first frame kept is the one that called the hook. */
static void walk_unwinder(const void *frame, struct frames *frames)
{
    void *found[MT_MAX_FRAMES + 8];
    int n = memtally_recorder.unwind(found, MT_MAX_FRAMES + 8);
    uintptr_t caller = ((const uintptr_t *)frame)[1];
    int first = 0;
    while (first < n && (uintptr_t)found[first] != caller)
        first++;
    if (first == n)
        first = 0;
    for (int i = first; i < n && frames->n < MT_MAX_FRAMES; i++)
        frames->address[frames->n++] = (uint64_t)(uintptr_t)found[i];
    frames->complete = frames->n > 0 && n < (int)(MT_MAX_FRAMES + 8);
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
        walk_frame_pointers(thread, frame, &frames);
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
