/* SPDX-License-Identifier: MIT */
/* Memory that threads have begun to give back: the event comes before the call that does it, and
 * the kernel counts the pages until that has ended. */
#ifndef MT_TALLY_LEAVING_H
#define MT_TALLY_LEAVING_H

#include <stddef.h>
#include <stdint.h>

/* If more threads are at it at once, the earliest are forgotten. */
#define MT_LEAVING_MOST 16

struct mt_leaving {
    uint64_t low;
    uint64_t high;
    uint32_t stream; /* of the thread */
};

/* Start from {0}. */
struct mt_leavings {
    struct mt_leaving items[MT_LEAVING_MOST];
    size_t n;
};

void mt_leaving_note(struct mt_leavings *leavings, uint32_t stream, uint64_t address,
                     uint64_t size);

/* Whatever a thread does next, what it gave back has gone. */
void mt_leaving_forget(struct mt_leavings *leavings, uint32_t stream);

uint64_t mt_leaving_bytes(const struct mt_leavings *leavings);

/* The whole pages that item `i` lies in, into [*low, *high). A block that its allocator mapped by
 * itself has its pages to itself, and a head before it. */
void mt_leaving_pages(const struct mt_leavings *leavings, size_t i, uint64_t page_bytes,
                      uint64_t *low, uint64_t *high);

#endif
