/* SPDX-License-Identifier: MIT */
/* What was there at a place at a moment, in parts of one use each. */
#ifndef MT_REHEARSAL_PARTS_H
#define MT_REHEARSAL_PARTS_H

#include <memtally/provenance.h>

#include "rehearse/rehearsal.h"

/* A buffer, or a part of a driver's allocation. Texts are borrowed from reader and trace. */
struct mt_breakdown_part {
    enum mt_category category;
    enum mt_provenance provenance;
    uint64_t bytes, low_bytes, high_bytes;
    uint64_t count;
    const char *name;
    const char *detail;
};

struct mt_breakdown {
    struct mt_breakdown_part *items;
    size_t n;
    size_t capacity;
    uint64_t unsplit_bytes; /* that some allocator holds and nobody splits */
};

/* What parts are made of. */
struct mt_breakdown_source {
    const struct mt_account_reader *reader;
    struct mt_torch *torch; /* NULL: nothing is split */
    int counts_plans;
    int is_cuda; /* what allocations are for is not in the account but in the program's traces */
};

/* Whether an allocation counts. Of a CUDA program's host memory only pinned memory does, because we
 * see the rest in part. */
int mt_breakdown_count(const struct mt_breakdown_source *source,
                       const struct mt_rehearsal_event *event);

/* Fills in what was at a place after the event at `after`, ordered by kind; where `is_peak`,
 * divided as at the fullest moment of PyTorch's allocator while it had the segments that it had
 * then. `parts` is used again from call to call, mt_breakdown_finish() frees it. Errors: MT_ENOMEM.
 */
int mt_breakdown_gather(const struct mt_breakdown_source *source, uint8_t place, size_t after,
                        int is_peak, struct mt_breakdown *parts);
/* Whether parts are ordered, and each within its bounds. */
int mt_breakdown_is_valid(const struct mt_breakdown *parts);

void mt_breakdown_finish(struct mt_breakdown *parts);

/* Whether both are of one kind, so that one row shows them. The sign orders them. */
int mt_breakdown_compare(const struct mt_breakdown_part *one,
                         const struct mt_breakdown_part *other);

#endif
