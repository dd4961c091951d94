/* SPDX-License-Identifier: MIT */
/* The sparkline. */
#include "emit/sparkline.h"

#define LEVELS 8

static const char *const blocks[LEVELS] = {"\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83",
                                           "\xe2\x96\x84", "\xe2\x96\x85", "\xe2\x96\x86",
                                           "\xe2\x96\x87", "\xe2\x96\x88"};
static const char *const signs[LEVELS] = {"_", ".", ":", "-", "=", "+", "*", "#"};

static size_t level_of(uint64_t value, uint64_t top)
{
    if (top == 0)
        return 0;
    double share = (double)value / (double)top;
    size_t level = (size_t)(share * LEVELS);
    return level < LEVELS ? level : LEVELS - 1;
}

void mt_sparkline(struct mt_strbuf *out, const uint64_t *values, size_t n, uint64_t top, int utf8)
{
    for (size_t i = 0; i < n; i++) {
        if (values[i] == UINT64_MAX)
            mt_strbuf_puts(out, " ");
        else
            mt_strbuf_puts(out, (utf8 ? blocks : signs)[level_of(values[i], top)]);
    }
}
