/* SPDX-License-Identifier: MIT */
/* See regions.h. A forked child has its parent's leaves and knows what its parent has written. */
#include "recorder/regions.h"

#include "recorder/sys.h"

/* NULL where there is none and none can be had. */
static struct region_leaf *leaf_of(struct thread *thread, uint64_t number)
{
    struct region_leaf *none = NULL;
    struct region_leaf *leaf = __atomic_load_n(&memtally_recorder.leaves[number], __ATOMIC_ACQUIRE);
    if (leaf || memtally_recorder.is_filtered || !(leaf = mt_sys_map(sizeof *leaf)))
        return leaf;
    if (__atomic_compare_exchange_n(&memtally_recorder.leaves[number], &none, leaf, 0,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        write_self(thread, leaf, sizeof *leaf);
        return leaf;
    }
    MT_SYS2(SYS_munmap, leaf, sizeof *leaf);
    return none;
}

void region_note(struct thread *thread, uint64_t first, uint64_t last)
{
    uint64_t fields[] = {first, last - first + 1};
    mt_write_event(&thread->writer, MT_EVENT_HEAP_REGION, now_ticks(), fields, 2);
    for (uint64_t granule = first; granule <= last; granule++) {
        uint64_t number = granule / LEAF_GRANULES;
        struct region_leaf *leaf = number < REGION_LEAVES ? leaf_of(thread, number) : NULL;
        if (!leaf) /* none of this leaf's is to be had */
            granule = (number + 1) * LEAF_GRANULES - 1;
        else
            __atomic_fetch_or(&leaf->word[granule % LEAF_GRANULES / 64],
                              (uint64_t)1 << (granule % 64), __ATOMIC_RELAXED);
    }
}
