/* SPDX-License-Identifier: MIT */
/* Splitting a stream into lines. Knows libc only. */
#include "lines.h"

#include <string.h>

static void append(struct mt_profile_lines *lines, const char *bytes, size_t length)
{
    size_t room = MT_PROFILE_LINE_MAX - lines->line.length;
    mt_strbuf_append(&lines->line, bytes, length < room ? length : room);
}

static void end_line(struct mt_profile_lines *lines, mt_profile_line_fn *take, void *context)
{
    if (mt_strbuf_failed(&lines->line)) {
        mt_strbuf_finish(&lines->line);
        return;
    }
    size_t length = lines->line.length;
    if (length > 0 && lines->line.data[length - 1] == '\r')
        lines->line.data[--length] = '\0';
    take(context, mt_strbuf_text(&lines->line), length);
    lines->line.length = 0;
    if (lines->line.data)
        lines->line.data[0] = '\0';
}

void mt_profile_lines_feed(struct mt_profile_lines *lines, const char *bytes, size_t length,
                           mt_profile_line_fn *take, void *context)
{
    while (length > 0) {
        const char *end = memchr(bytes, '\n', length);
        size_t part = end ? (size_t)(end - bytes) : length;
        append(lines, bytes, part);
        if (!end)
            return;
        end_line(lines, take, context);
        bytes += part + 1;
        length -= part + 1;
    }
}

void mt_profile_lines_finish(struct mt_profile_lines *lines, mt_profile_line_fn *take,
                             void *context)
{
    if (lines->line.length > 0)
        end_line(lines, take, context);
    mt_strbuf_finish(&lines->line);
}
