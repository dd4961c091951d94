/* SPDX-License-Identifier: MIT */
/* A growing string that is always terminated.
 *
 * A failed allocation is remembered: later appends do nothing and mt_strbuf_failed() tells, so that
 * a run of appends needs one check at its end. */
#ifndef MT_BASE_STRBUF_H
#define MT_BASE_STRBUF_H

#include <stdarg.h>
#include <stddef.h>

struct mt_strbuf {
    char *data; /* NULL or terminated at data[length] */
    size_t length;
    size_t capacity;
    int failed;
};

void mt_strbuf_init(struct mt_strbuf *buffer);
void mt_strbuf_finish(struct mt_strbuf *buffer);
int mt_strbuf_failed(const struct mt_strbuf *buffer);

/* Frees a part that went into `whole`, which has failed where the part has. */
void mt_strbuf_finish_part(struct mt_strbuf *part, struct mt_strbuf *whole);

void mt_strbuf_append(struct mt_strbuf *buffer, const void *bytes, size_t length);
void mt_strbuf_puts(struct mt_strbuf *buffer, const char *text);
void mt_strbuf_printf(struct mt_strbuf *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The text, "" where nothing was appended. Borrowed until the next append. */
const char *mt_strbuf_text(const struct mt_strbuf *buffer);

/* Hands the text over to the caller, who frees it with free(); NULL if an append had failed.
 * The buffer is as after init. */
char *mt_strbuf_take(struct mt_strbuf *buffer);

#endif
