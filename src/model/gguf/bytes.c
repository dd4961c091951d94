/* SPDX-License-Identifier: MIT */
/* The bytes of a GGUF header, read in steps. Knows where a file ends, not what is in it. */
#include "gguf.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* More than the header of a model with half a million tensors; what is passed over does not count.
 */
#define HEADER_MAX (UINT64_C(64) << 20)
#define STEP_MIN   4096

/* Drops what lies before `at`. */
static void forget(struct mt_gguf_bytes *bytes)
{
    uint64_t passed = bytes->at - bytes->start;
    if (passed >= bytes->length) {
        bytes->length = 0;
    } else {
        bytes->length -= (size_t)passed;
        memmove(bytes->data, bytes->data + passed, bytes->length);
    }
    bytes->start = bytes->at;
}

static int make_room(struct mt_gguf_bytes *bytes, size_t room, struct mt_error *error)
{
    if (room <= bytes->capacity)
        return 0;
    size_t capacity = bytes->capacity * 2 > room ? bytes->capacity * 2 : room;
    uint8_t *data = realloc(bytes->data, capacity);
    if (!data)
        return mt_fail(error, MT_ENOMEM, bytes->at, "%s: out of memory for its header",
                       bytes->path);
    bytes->data = data;
    bytes->capacity = capacity;
    return 0;
}

/* Reads on until the buffer reaches `end`, and a step more where the file has it. */
static int read_on(struct mt_gguf_bytes *bytes, uint64_t end, struct mt_error *error)
{
    const struct mt_model_source *source = bytes->source;
    uint64_t from = bytes->start + bytes->length;
    uint64_t step = source->step_bytes > STEP_MIN ? source->step_bytes : STEP_MIN;
    uint64_t to = end - from < step ? from + step : end;
    if (to > source->size_bytes || to < from)
        to = source->size_bytes;
    if (bytes->walked + (to - from) > HEADER_MAX)
        return mt_fail(error, MT_ELIMIT, bytes->at, "%s: the header is longer than %llu MiB",
                       bytes->path, (unsigned long long)(HEADER_MAX >> 20));
    int code = make_room(bytes, (size_t)(to - bytes->start), error);
    if (!code)
        code = source->read(source->argument, from, bytes->data + bytes->length,
                            (size_t)(to - from), error);
    if (code)
        return code;
    bytes->length += (size_t)(to - from);
    bytes->walked += to - from;
    return 0;
}

int mt_gguf_fetch(struct mt_gguf_bytes *bytes, uint64_t n, const char *what, struct mt_error *error)
{
    uint64_t size = bytes->source->size_bytes;
    if (n > size - bytes->at)
        return mt_fail(error, MT_ETRUNCATED, bytes->at,
                       "%s: the file ends at byte %llu, within %s at byte %llu", bytes->path,
                       (unsigned long long)size, what, (unsigned long long)bytes->at);
    forget(bytes);
    return read_on(bytes, bytes->at + n, error);
}

int mt_gguf_number(struct mt_gguf_bytes *bytes, size_t width, const char *what, uint64_t *value,
                   struct mt_error *error)
{
    int code = mt_gguf_need(bytes, width, what, error);
    if (code)
        return code;
    *value = mt_gguf_number_at(mt_gguf_here(bytes), width, bytes->big_endian);
    bytes->at += width;
    return 0;
}

int mt_gguf_length(struct mt_gguf_bytes *bytes, const char *what, uint64_t *length,
                   struct mt_error *error)
{
    uint64_t at = bytes->at;
    uint64_t size = bytes->source->size_bytes;
    int code = mt_gguf_number(bytes, 8, what, length, error);
    if (code)
        return code;
    if (*length > size)
        return mt_fail(error, MT_EFORMAT, at,
                       "%s: %s at byte %llu is %llu bytes long, the whole file has %llu",
                       bytes->path, what, (unsigned long long)at, (unsigned long long)*length,
                       (unsigned long long)size);
    if (*length > size - bytes->at)
        return mt_fail(error, MT_ETRUNCATED, at,
                       "%s: the file ends at byte %llu, within %s at byte %llu", bytes->path,
                       (unsigned long long)size, what, (unsigned long long)at);
    return 0;
}
