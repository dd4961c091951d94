/* SPDX-License-Identifier: MIT */
/* Scopes, labels and marks: what a program tells the recorder about its memory.
 *
 * Header only: nothing is linked. Without the recorder each call is one branch that is never taken.
 * What a thread allocates between mt_scope_begin() and mt_scope_end() belongs to that scope's
 * category, unless a label says otherwise. Scopes nest; each thread has its own. All calls may be
 * made from any thread, also where there is no recorder. Names are copied and cut at 4096 bytes.
 *
 *     mt_scope_begin(MT_CATEGORY_KV_CACHE, "my cache");
 *     cache = mmap(…);
 *     mt_scope_end();
 */
#ifndef MEMTALLY_SCOPE_H
#define MEMTALLY_SCOPE_H

#include <stddef.h>

#include <memtally/category.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The recorder provides the hooks; nobody else may. They are weak so that a program links and runs
 * without them. Their addresses come from the table that the loader fills: what a program at a
 * fixed address (-no-pie) would use instead is a zero that the linker puts in for good. */
#if defined(__x86_64__) && !defined(__clang__)
#define MT_SCOPE_WEAK __attribute__((weak, noplt))
#else
#define MT_SCOPE_WEAK __attribute__((weak))
#endif

#if defined(__x86_64__) && defined(__clang__) && !defined(__PIC__)
#define MT_SCOPE_FIND(hook, name)                                                                  \
    __asm__(".weak " #name "\n\tmovq " #name "@GOTPCREL(%%rip), %0" : "=r"(hook))
#else
#define MT_SCOPE_FIND(hook, name) (void)((hook) = (name))
#endif

#define MT_SCOPE_ABSENT(hook) __builtin_expect(!(hook), 1)

MT_SCOPE_WEAK void memtally_hook_scope_begin(int category, const char *name);
MT_SCOPE_WEAK void memtally_hook_scope_end(void);
MT_SCOPE_WEAK void memtally_hook_label(const void *address, size_t length_bytes, int category,
                                       const char *name);
MT_SCOPE_WEAK void memtally_hook_label_block(const void *block, size_t length_bytes, int category,
                                             const char *name);
MT_SCOPE_WEAK void memtally_hook_unlabel(const void *address, size_t length_bytes);
MT_SCOPE_WEAK void memtally_hook_mark(const char *name);

/* Begins a scope on the calling thread. */
static inline void mt_scope_begin(enum mt_category category, const char *name)
{
    void (*hook)(int, const char *);
    MT_SCOPE_FIND(hook, memtally_hook_scope_begin);
    if (MT_SCOPE_ABSENT(hook))
        return;
    hook((int)category, name);
}

/* Ends the calling thread's innermost scope; without one it does nothing. */
static inline void mt_scope_end(void)
{
    void (*hook)(void);
    MT_SCOPE_FIND(hook, memtally_hook_scope_end);
    if (MT_SCOPE_ABSENT(hook))
        return;
    hook();
}

/* Says what the memory at [address, address + length_bytes) is. The label holds until
 * the range is unlabelled or unmapped, or the block of 64 KiB or more that it lies in is freed, and
 * wins over scopes. A later label wins over an earlier one. */
static inline void mt_label(const void *address, size_t length_bytes, enum mt_category category,
                            const char *name)
{
    void (*hook)(const void *, size_t, int, const char *);
    MT_SCOPE_FIND(hook, memtally_hook_label);
    if (MT_SCOPE_ABSENT(hook))
        return;
    hook(address, length_bytes, (int)category, name);
}

/* Says what the heap block at `block` is, as malloc() or its like gave it and of whatever size,
 * from its beginning until it is freed: a moment before the call shows it as well. `length_bytes`
 * is what was asked for. `block` must be alive. */
static inline void mt_label_block(const void *block, size_t length_bytes, enum mt_category category,
                                  const char *name)
{
    void (*hook)(const void *, size_t, int, const char *);
    MT_SCOPE_FIND(hook, memtally_hook_label_block);
    if (MT_SCOPE_ABSENT(hook))
        return;
    hook(block, length_bytes, (int)category, name);
}

/* Takes back what was said about [address, address + length_bytes), also for part of a label. */
static inline void mt_unlabel(const void *address, size_t length_bytes)
{
    void (*hook)(const void *, size_t);
    MT_SCOPE_FIND(hook, memtally_hook_unlabel);
    if (MT_SCOPE_ABSENT(hook))
        return;
    hook(address, length_bytes);
}

/* Marks this moment on the timeline; `report --at` can be asked for it by its time. The recorder
 * takes a picture of the resident pages here, as far as the share of time for pictures allows. */
static inline void mt_mark(const char *name)
{
    void (*hook)(const char *);
    MT_SCOPE_FIND(hook, memtally_hook_mark);
    if (MT_SCOPE_ABSENT(hook))
        return;
    hook(name);
}

#ifdef __cplusplus
}

namespace memtally
{
/* A scope for the lifetime of an object. */
class scope
{
  public:
    scope(enum mt_category category, const char *name)
    {
        mt_scope_begin(category, name);
    }
    ~scope()
    {
        mt_scope_end();
    }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
};
} // namespace memtally
#endif
#endif
