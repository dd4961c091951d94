/* SPDX-License-Identifier: MIT */
/* Reading the kernel's small text files. Knows no file and touches nothing outside its bytes. */
#include "device/span.h"

#include <string.h>

int mt_span_until(struct mt_span *text, char separator, struct mt_span *part)
{
    if (text->at >= text->end)
        return 0;
    const char *found = memchr(text->at, separator, (size_t)(text->end - text->at));
    part->at = text->at;
    part->end = found ? found : text->end;
    text->at = found ? found + 1 : text->end;
    return 1;
}

int mt_span_line(struct mt_span *text, struct mt_span *line)
{
    return mt_span_until(text, '\n', line);
}

int mt_span_starts(const struct mt_span *text, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(text->end - text->at) >= length && memcmp(text->at, word, length) == 0;
}

int mt_span_is(const struct mt_span *text, const char *word)
{
    return (size_t)(text->end - text->at) == strlen(word) && mt_span_starts(text, word);
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

int mt_span_number(struct mt_span *text, uint64_t *value)
{
    const char *at = text->at;
    while (at < text->end && is_blank(*at))
        at++;
    const char *digits = at;
    uint64_t number = 0;
    for (; at < text->end && *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (number > (UINT64_MAX - digit) / 10)
            return 0;
        number = number * 10 + digit;
    }
    if (at == digits)
        return 0;
    text->at = at;
    *value = number;
    return 1;
}

static int take_key(struct mt_span *line, struct mt_span *key)
{
    const char *at = line->at;
    while (at < line->end && *at != ':' && !is_blank(*at))
        at++;
    if (at == line->end)
        return 0;
    *key = (struct mt_span){line->at, at};
    line->at = at + (*at == ':');
    return 1;
}

static int take_bytes(struct mt_span *line, uint64_t *value)
{
    uint64_t number;
    if (!mt_span_number(line, &number))
        return 0;
    if (mt_span_starts(line, " kB")) {
        if (number > UINT64_MAX / 1024)
            return 0;
        number *= 1024;
    }
    *value = number;
    return 1;
}

void mt_span_fields(struct mt_span text, const struct mt_field *fields, size_t n_fields,
                    void *values)
{
    struct mt_span line;
    struct mt_span key;
    while (mt_span_line(&text, &line)) {
        if (!take_key(&line, &key))
            continue;
        for (size_t i = 0; i < n_fields; i++) {
            uint64_t value;
            if (!mt_span_is(&key, fields[i].key))
                continue;
            if (take_bytes(&line, &value))
                memcpy((char *)values + fields[i].offset, &value, sizeof value);
            break;
        }
    }
}
