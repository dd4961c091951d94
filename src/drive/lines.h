/* SPDX-License-Identifier: MIT */
/* Lines out of a stream that comes in pieces, of bounded length. */
#ifndef DRIVE_LINES_H
#define DRIVE_LINES_H

#include <stddef.h>

#include "base/strbuf.h"

/* What of a longer line is past this is dropped. */
#define MT_PROFILE_LINE_MAX ((size_t)256 * 1024)

/* Called with a terminated line without its end. It may hold NULs. */
typedef void mt_profile_line_fn(void *context, const char *line, size_t length);

/* Start with {0}. */
struct mt_profile_lines {
    struct mt_strbuf line;
};

/* Takes `length` bytes and calls `take` for every line that they end. A failed allocation drops the
 * line. */
void mt_profile_lines_feed(struct mt_profile_lines *lines, const char *bytes, size_t length,
                           mt_profile_line_fn *take, void *context);

/* The stream has ended: calls `take` for a line that has no end, and frees what is held. */
void mt_profile_lines_finish(struct mt_profile_lines *lines, mt_profile_line_fn *take,
                             void *context);

#endif
