/* SPDX-License-Identifier: MIT */
/* Comma-separated values with the quoting of RFC 4180; lines end with a line feed.
 *
 * Control characters and bytes that are not UTF-8 are written as "\n", "\x1b": a record is a line,
 * whatever names hold. */
#ifndef MT_EMIT_CSV_H
#define MT_EMIT_CSV_H

#include <stdint.h>

#include "base/strbuf.h"

struct mt_csv {
    struct mt_strbuf *out;
    int within_line;
};

/* Each adds one field. NULL, UINT64_MAX and negative numbers are unknown: an empty field. */
void mt_csv_text(struct mt_csv *csv, const char *text);
void mt_csv_count(struct mt_csv *csv, uint64_t count);
void mt_csv_real(struct mt_csv *csv, double real);

void mt_csv_end_line(struct mt_csv *csv);

/* A line of headings, given with commas between them. */
void mt_csv_headings(struct mt_csv *csv, const char *headings);

#endif
