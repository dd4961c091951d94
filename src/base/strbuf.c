/* SPDX-License-Identifier: MIT */
/* The growing string. Knows libc only. */
#include "base/strbuf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mt_strbuf_init(struct mt_strbuf *buffer)
{
    *buffer = (struct mt_strbuf){0};
}

void mt_strbuf_finish(struct mt_strbuf *buffer)
{
    free(buffer->data);
    mt_strbuf_init(buffer);
}

void mt_strbuf_finish_part(struct mt_strbuf *part, struct mt_strbuf *whole)
{
    whole->failed |= part->failed;
    mt_strbuf_finish(part);
}

int mt_strbuf_failed(const struct mt_strbuf *buffer)
{
    return buffer->failed;
}

/* Makes room for `more` bytes and the terminator. */
static int reserve(struct mt_strbuf *buffer, size_t more)
{
    if (buffer->failed)
        return 0;
    if (more >= SIZE_MAX / 2 - buffer->length) {
        buffer->failed = 1;
        return 0;
    }
    size_t needed = buffer->length + more + 1;
    if (needed <= buffer->capacity)
        return 1;
    size_t capacity = buffer->capacity ? buffer->capacity : 64;
    while (capacity < needed)
        capacity *= 2;
    char *data = realloc(buffer->data, capacity);
    if (!data) {
        buffer->failed = 1;
        return 0;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return 1;
}

void mt_strbuf_append(struct mt_strbuf *buffer, const void *bytes, size_t length)
{
    if (!reserve(buffer, length))
        return;
    if (length)
        memcpy(buffer->data + buffer->length, bytes, length);
    buffer->length += length;
    buffer->data[buffer->length] = '\0';
}

void mt_strbuf_puts(struct mt_strbuf *buffer, const char *text)
{
    mt_strbuf_append(buffer, text, strlen(text));
}

void mt_strbuf_printf(struct mt_strbuf *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) {
        buffer->failed = 1;
        return;
    }
    if (!reserve(buffer, (size_t)length))
        return;
    va_start(arguments, format);
    vsnprintf(buffer->data + buffer->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->length += (size_t)length;
}

const char *mt_strbuf_text(const struct mt_strbuf *buffer)
{
    return buffer->data ? buffer->data : "";
}

char *mt_strbuf_take(struct mt_strbuf *buffer)
{
    if (!reserve(buffer, 0)) {
        mt_strbuf_finish(buffer);
        return NULL;
    }
    buffer->data[buffer->length] = '\0';
    char *data = buffer->data;
    mt_strbuf_init(buffer);
    return data;
}
