/* SPDX-License-Identifier: MIT */
/* In which megabytes of the address space the heap was seen: a bit for each, in leaves of 8 KiB
 * that are mapped as they are needed. A heap of 64 GiB has one leaf, and most programs have three.
 */
#ifndef MT_RECORDER_REGIONS_H
#define MT_RECORDER_REGIONS_H

#include "recorder/recorder.h"

#define LEAF_GRANULES 65536u

_Static_assert((uint64_t)REGION_LEAVES *LEAF_GRANULES *MT_GRANULE_BYTES == (uint64_t)1 << 48,
               "addresses of 48 bits have a leaf");

struct region_leaf {
    uint64_t word[LEAF_GRANULES / 64];
};

/* What lies above 48 bits, where a machine has that and a program asks for it, is known to none and
 * written each time. */
static inline int region_is_known(uint64_t granule)
{
    if (UNLIKELY(granule / LEAF_GRANULES >= REGION_LEAVES))
        return 0;
    const struct region_leaf *leaf =
        __atomic_load_n(&memtally_recorder.leaves[granule / LEAF_GRANULES], __ATOMIC_ACQUIRE);
    return LIKELY(leaf != NULL) && leaf->word[granule % LEAF_GRANULES / 64] >> (granule % 64) & 1;
}

/* Writes that the heap was seen in these granules, and notes that it was written. */
HIDDEN void region_note(struct thread *thread, uint64_t first, uint64_t last);

#endif
