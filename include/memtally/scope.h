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

/* The recorder provides these; nobody else may. They are weak so that a program links and runs
 * without them. */
__attribute__((weak)) void memtally_hook_scope_begin(int category, const char *name);
__attribute__((weak)) void memtally_hook_scope_end(void);
__attribute__((weak)) void memtally_hook_label(const void *address, size_t length_bytes,
                                               int category, const char *name);
__attribute__((weak)) void memtally_hook_unlabel(const void *address, size_t length_bytes);
__attribute__((weak)) void memtally_hook_mark(const char *name);

#define MT_SCOPE_ABSENT(hook) __builtin_expect(!(hook), 1)

/* Begins a scope on the calling thread. */
static inline void mt_scope_begin(enum mt_category category, const char *name)
{
    if (MT_SCOPE_ABSENT(memtally_hook_scope_begin))
        return;
    memtally_hook_scope_begin((int)category, name);
}

/* Ends the calling thread's innermost scope; without one it does nothing. */
static inline void mt_scope_end(void)
{
    if (MT_SCOPE_ABSENT(memtally_hook_scope_end))
        return;
    memtally_hook_scope_end();
}

/* Says what the memory at [address, address + length_bytes) is. The label holds until the range is
 * unlabelled or unmapped, and wins over scopes. A later label wins over an earlier one. */
static inline void mt_label(const void *address, size_t length_bytes, enum mt_category category,
                            const char *name)
{
    if (MT_SCOPE_ABSENT(memtally_hook_label))
        return;
    memtally_hook_label(address, length_bytes, (int)category, name);
}

/* Takes back what was said about [address, address + length_bytes), also for part of a label. */
static inline void mt_unlabel(const void *address, size_t length_bytes)
{
    if (MT_SCOPE_ABSENT(memtally_hook_unlabel))
        return;
    memtally_hook_unlabel(address, length_bytes);
}

/* Marks this moment on the timeline; `report --at` can be asked for it by its time. */
static inline void mt_mark(const char *name)
{
    if (MT_SCOPE_ABSENT(memtally_hook_mark))
        return;
    memtally_hook_mark(name);
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
