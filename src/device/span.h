/* SPDX-License-Identifier: MIT */
/* Reading the kernel's small text files, without trust and without allocation. Knows no file. */
#ifndef MT_DEVICE_SPAN_H
#define MT_DEVICE_SPAN_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that are looked through from the front; not terminated. */
struct mt_span {
    const char *at;
    const char *end;
};

/* Takes the next line without its newline. Returns 0 where none is left. */
int mt_span_line(struct mt_span *text, struct mt_span *line);

/* Takes the bytes up to the next `separator` and the separator; at the end, what is left. Returns 0
 * where nothing is left. */
int mt_span_until(struct mt_span *text, char separator, struct mt_span *part);

/* Whether the text is `word`, or starts with it. */
int mt_span_is(const struct mt_span *text, const char *word);
int mt_span_starts(const struct mt_span *text, const char *word);

/* Takes a decimal number after blanks. Returns 0, moving nothing, where there is none or it is past
 * 64 bits. */
int mt_span_number(struct mt_span *text, uint64_t *value);

/* A field of a file that has lines of "key: 12 kB" or "key 12", and where its value goes: at
 * `offset` of a struct, as uint64_t. */
struct mt_field {
    const char *key;
    size_t offset;
};

/* Sets the fields that the text has, in bytes where the line says kB; leaves the others alone. */
void mt_span_fields(struct mt_span text, const struct mt_field *fields, size_t n_fields,
                    void *values);

#endif
