/* SPDX-License-Identifier: MIT */
#include "tally/leaving.h"

#include <string.h>

void mt_leaving_forget(struct mt_leavings *leavings, uint32_t stream)
{
    for (size_t i = 0; i < leavings->n; i++)
        if (leavings->items[i].stream == stream) {
            leavings->n--;
            memmove(leavings->items + i, leavings->items + i + 1,
                    (leavings->n - i) * sizeof *leavings->items);
            return;
        }
}

void mt_leaving_note(struct mt_leavings *leavings, uint32_t stream, uint64_t address, uint64_t size)
{
    uint64_t most = UINT64_MAX - address;
    mt_leaving_forget(leavings, stream);
    if (leavings->n == MT_LEAVING_MOST)
        mt_leaving_forget(leavings, leavings->items[0].stream);
    leavings->items[leavings->n++] =
        (struct mt_leaving){address, address + (size < most ? size : most), stream};
}

uint64_t mt_leaving_bytes(const struct mt_leavings *leavings)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < leavings->n; i++) {
        uint64_t bytes = leavings->items[i].high - leavings->items[i].low;
        sum = bytes < UINT64_MAX - sum ? sum + bytes : UINT64_MAX;
    }
    return sum;
}

void mt_leaving_pages(const struct mt_leavings *leavings, size_t i, uint64_t page_bytes,
                      uint64_t *low, uint64_t *high)
{
    const uint64_t in_page = page_bytes - 1;
    uint64_t end = leavings->items[i].high;
    *low = leavings->items[i].low & ~in_page;
    *high = end > UINT64_MAX - in_page ? end : (end + in_page) & ~in_page;
}
