/* SPDX-License-Identifier: MIT */
/* Decoding, escaping, measuring and cutting text. Knows nothing of what the text means. */
#include "emit/text.h"

#include <string.h>
#include <wchar.h>

/* The least code point of an encoding of so many bytes: less is overlong. */
static const uint32_t least_point[] = {0, 0, 0x80, 0x800, 0x10000};

static size_t utf8_length(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first < 0xe0)
        return 2;
    if (first >= 0xe0 && first < 0xf0)
        return 3;
    return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

size_t mt_utf8_decode(const char *text, uint32_t *point)
{
    static const unsigned char first_mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const unsigned char *bytes = (const unsigned char *)text;
    size_t length = utf8_length(bytes[0]);
    uint32_t value = bytes[0] & first_mask[length];
    /* The terminator is no continuation byte, so this does not read past it. */
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (bytes[i] & 0x3f);
    }
    if (value < least_point[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *point = value;
    return length;
}

/* Characters that move the cursor or turn the reading direction round. */
static int must_escape(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x200e || point == 0x200f ||
           (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069) ||
           point == 0xfeff;
}

static void put_escaped(struct mt_strbuf *out, uint32_t point)
{
    if (point == '\n')
        mt_strbuf_puts(out, "\\n");
    else if (point == '\t')
        mt_strbuf_puts(out, "\\t");
    else if (point < 0x80)
        mt_strbuf_printf(out, "\\x%02x", (unsigned)point);
    else
        mt_strbuf_printf(out, "\\u%04x", (unsigned)point);
}

void mt_text_escape(struct mt_strbuf *out, const char *text, int utf8)
{
    while (*text) {
        uint32_t point;
        size_t length = mt_utf8_decode(text, &point);
        if (length == 0)
            mt_strbuf_printf(out, "\\x%02x", (unsigned)(unsigned char)*text);
        else if (must_escape(point) || (point >= 0x80 && !utf8))
            put_escaped(out, point);
        else
            mt_strbuf_append(out, text, length);
        text += length ? length : 1;
    }
}

void mt_text_repair(struct mt_strbuf *out, const char *text)
{
    while (*text) {
        uint32_t point;
        size_t length = mt_utf8_decode(text, &point);
        if (length)
            mt_strbuf_append(out, text, length);
        else
            mt_strbuf_puts(out, "\xef\xbf\xbd");
        text += length ? length : 1;
    }
}

/* The bytes of the character at `text` and its columns. */
static size_t step(const char *text, size_t *columns)
{
    uint32_t point;
    size_t length = mt_utf8_decode(text, &point);
    *columns = 1;
    if (length > 1) {
        int width = wcwidth((wchar_t)point);
        *columns = width >= 0 ? (size_t)width : 1;
    }
    return length ? length : 1;
}

size_t mt_text_columns(const char *text)
{
    size_t total = 0;
    while (*text) {
        size_t columns;
        text += step(text, &columns);
        total += columns;
    }
    return total;
}

/* How many bytes from the front fit into `limit` columns. */
static size_t bytes_that_fit(const char *text, size_t limit)
{
    size_t used = 0;
    size_t at = 0;
    while (text[at]) {
        size_t columns;
        size_t length = step(text + at, &columns);
        if (used + columns > limit)
            break;
        used += columns;
        at += length;
    }
    return at;
}

void mt_text_cut(struct mt_strbuf *out, const char *text, size_t columns, int utf8)
{
    size_t total = mt_text_columns(text);
    if (total <= columns) {
        mt_strbuf_puts(out, text);
        return;
    }
    const char *mark = utf8 ? "\xe2\x80\xa6" : "...";
    size_t mark_columns = utf8 ? 1 : 3;
    if (columns <= mark_columns) {
        mt_strbuf_append(out, text, bytes_that_fit(text, columns));
        return;
    }
    size_t kept = columns - mark_columns;
    size_t front = (kept + 1) / 2;
    mt_strbuf_append(out, text, bytes_that_fit(text, front));
    mt_strbuf_puts(out, mark);
    /* Drop from the front what leaves at most the rest of the columns. */
    const char *tail = text;
    size_t left = total;
    while (left > kept - front) {
        size_t width;
        tail += step(tail, &width);
        left -= width;
    }
    mt_strbuf_puts(out, tail);
}

/* The columns of `length` bytes of text. */
static size_t columns_of(const char *text, size_t length)
{
    size_t total = 0;
    for (size_t at = 0; at < length;) {
        size_t columns;
        at += step(text + at, &columns);
        total += columns;
    }
    return total;
}

void mt_text_wrap(struct mt_strbuf *out, const char *text, size_t indent, size_t columns)
{
    size_t column = 0;
    while (*text) {
        size_t length = strcspn(text, " ");
        size_t fits = bytes_that_fit(text, columns > indent ? columns - indent : 1);
        length = length > fits && fits ? fits : length;
        size_t width = columns_of(text, length);
        if (column && column + 1 + width > columns) {
            mt_strbuf_puts(out, "\n");
            column = 0;
        }
        if (column == 0) {
            mt_strbuf_printf(out, "%*s", (int)indent, "");
            column = indent;
        } else {
            mt_strbuf_puts(out, " ");
            column++;
        }
        mt_strbuf_append(out, text, length);
        column += width;
        text += length;
        text += strspn(text, " ");
    }
    mt_strbuf_puts(out, "\n");
}
