/* SPDX-License-Identifier: MIT */
/* What a heap block is by the library that asked for it, where nobody says more. */
#ifndef MT_TALLY_CALLERS_H
#define MT_TALLY_CALLERS_H

#include <memtally/category.h>

#include "tally/maps.h"
#include "tally/replay.h"

struct mt_caller {
    const char *library; /* what the name of its file begins with */
    enum mt_category category;
    const char *name; /* of the part */
};

/* Who asked, by the innermost call of `stack`; NULL where that is none that we know. Static. */
const struct mt_caller *mt_caller_of(const struct mt_maps *maps, const struct mt_stack *stack);

#endif
