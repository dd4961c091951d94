/* SPDX-License-Identifier: MIT */
/* Pieces of an address space. Each operation makes the list anew: there are as many pieces as there
 * are runs of pages, and few operations. */
#include "tally/extents.h"
#include "base/array.h"

#include <stdlib.h>

void mt_extents_finish(struct mt_extents *extents)
{
    free(extents->items);
    *extents = (struct mt_extents){0};
}

void mt_extents_add(struct mt_extents *extents, uint64_t low, uint64_t high)
{
    struct mt_extent *last = extents->n ? &extents->items[extents->n - 1] : NULL;
    if (low >= high)
        return;
    if (last && low >= last->low && low <= last->high) {
        last->high = high > last->high ? high : last->high;
        return;
    }
    if (mt_array_reserve(extents->items, extents->n, extents->capacity, 64) < 0) {
        extents->failed = 1;
        return;
    }
    extents->items[extents->n++] = (struct mt_extent){low, high};
}

uint64_t mt_extents_bytes(const struct mt_extents *extents)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < extents->n; i++)
        bytes += extents->items[i].high - extents->items[i].low;
    return bytes;
}

static void replace(struct mt_extents *extents, struct mt_extents *made)
{
    made->failed |= extents->failed;
    free(extents->items);
    *extents = *made;
}

void mt_extents_keep(struct mt_extents *extents, const struct mt_ranges *ranges)
{
    struct mt_extents made = {0};
    struct mt_range range;
    for (size_t i = 0; i < extents->n; i++) {
        const struct mt_extent extent = extents->items[i];
        for (uint64_t at = extent.low;
             at < extent.high && mt_ranges_at_or_after(ranges, at, &range) &&
             range.low < extent.high;
             at = range.high)
            mt_extents_add(&made, range.low > extent.low ? range.low : extent.low,
                           range.high < extent.high ? range.high : extent.high);
    }
    replace(extents, &made);
}

void mt_extents_drop(struct mt_extents *extents, const struct mt_ranges *ranges)
{
    struct mt_extents made = {0};
    struct mt_range range;
    for (size_t i = 0; i < extents->n; i++) {
        const struct mt_extent extent = extents->items[i];
        uint64_t at = extent.low;
        while (at < extent.high && mt_ranges_at_or_after(ranges, at, &range) &&
               range.low < extent.high) {
            mt_extents_add(&made, at, range.low);
            at = range.high;
        }
        mt_extents_add(&made, at, extent.high);
    }
    replace(extents, &made);
}

void mt_extents_share(struct mt_extents *extents, uint64_t bytes, uint64_t page_bytes)
{
    double share = 0;
    uint64_t all = mt_extents_bytes(extents);
    uint64_t passed = 0;
    uint64_t kept = 0;
    if (bytes >= all)
        return;
    share = (double)bytes / (double)all;
    for (size_t i = 0; i < extents->n; i++) {
        struct mt_extent *extent = &extents->items[i];
        uint64_t length = extent->high - extent->low;
        passed += length;
        uint64_t wanted = i + 1 == extents->n ? bytes : (uint64_t)((double)passed * share);
        uint64_t own = wanted > kept ? (wanted - kept) / page_bytes * page_bytes : 0;
        own = own < length ? own : length;
        extent->high = extent->low + own;
        kept += own;
    }
}

void mt_extents_last(struct mt_extents *extents, uint64_t bytes)
{
    size_t first = extents->n;
    while (first > 0 && bytes) {
        struct mt_extent *extent = &extents->items[--first];
        if (extent->high - extent->low > bytes)
            extent->low = extent->high - bytes;
        bytes -= extent->high - extent->low;
    }
    for (size_t i = first; i < extents->n; i++)
        extents->items[i - first] = extents->items[i];
    extents->n -= first;
}
