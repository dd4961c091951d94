/* SPDX-License-Identifier: MIT */
/* The libraries that are loaded, wherever the loader lets them be seen. */
#ifndef MT_RECORDER_MODULES_H
#define MT_RECORDER_MODULES_H

#include "recorder/real.h"

/* The function called `name` in any loaded library but the recorder, or NULL. */
HIDDEN void *find_anywhere(const char *name);

/* Whether an address lies in the recorder. */
static inline int is_own(const void *address)
{
    return (uintptr_t)address - memtally_real.own_low <
           memtally_real.own_high - memtally_real.own_low;
}

#endif
