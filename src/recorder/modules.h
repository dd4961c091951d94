/* SPDX-License-Identifier: MIT */
/* The libraries that are loaded, wherever the loader lets them be seen. */
#ifndef MT_RECORDER_MODULES_H
#define MT_RECORDER_MODULES_H

#include "recorder/real.h"

/* The function called `name` in any loaded library but the recorder, or NULL. */
HIDDEN void *find_anywhere(const char *name);

/* The function called `name` as the loader would bind it for the module that `caller` lies in,
 * whose extent is set; NULL where there is none. */
HIDDEN void *find_bound(const char *name, uintptr_t caller, uintptr_t *low, uintptr_t *high);

/* A number that is another one once a library was loaded or dropped. */
HIDDEN uint64_t loader_generation(void);

/* An entry of a cache is written by one thread at a time: its sequence is odd meanwhile. 0 where
 * another has it, to whom it is left. */
static inline int entry_claim(uint32_t *sequence)
{
    uint32_t was = __atomic_load_n(sequence, __ATOMIC_RELAXED);
    if (was & 1 || !__atomic_compare_exchange_n(sequence, &was, was + 1, 0, __ATOMIC_ACQUIRE,
                                                __ATOMIC_RELAXED))
        return 0;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return 1;
}

static inline void entry_release(uint32_t *sequence)
{
    __atomic_store_n(sequence, *sequence + 1, __ATOMIC_RELEASE);
}

/* Whether an address lies in the recorder. */
static inline int is_own(const void *address)
{
    return (uintptr_t)address - memtally_real.own_low <
           memtally_real.own_high - memtally_real.own_low;
}

#endif
