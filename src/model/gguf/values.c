/* SPDX-License-Identifier: MIT */
/* The pairs of a GGUF header. Knows the types of values, not what any key means, but that those of
 * the tokenizer are long and of no use here. */
#include "gguf.h"

#include "base/array.h"
#include "base/error.h"
#include "model/utf8.h"

#include <stdlib.h>
#include <string.h>

#define KEY_MAX    65535
#define PAIR_LEAST 13 /* bytes of the shortest pair: a key's length, a type, a bool */

static const uint8_t widths[MT_GGUF_VALUE_TYPES] = {
    [MT_GGUF_VALUE_U8] = 1,  [MT_GGUF_VALUE_I8] = 1,   [MT_GGUF_VALUE_U16] = 2,
    [MT_GGUF_VALUE_I16] = 2, [MT_GGUF_VALUE_U32] = 4,  [MT_GGUF_VALUE_I32] = 4,
    [MT_GGUF_VALUE_F32] = 4, [MT_GGUF_VALUE_BOOL] = 1, [MT_GGUF_VALUE_U64] = 8,
    [MT_GGUF_VALUE_I64] = 8, [MT_GGUF_VALUE_F64] = 8,
};

static int is_float(uint8_t type)
{
    return type == MT_GGUF_VALUE_F32 || type == MT_GGUF_VALUE_F64;
}

/* The number as 64 bits, its sign carried on. */
static uint64_t widen(uint64_t number, uint8_t type)
{
    switch (type) {
    case MT_GGUF_VALUE_I8:
        return (uint64_t)(int64_t)(int8_t)number;
    case MT_GGUF_VALUE_I16:
        return (uint64_t)(int64_t)(int16_t)number;
    case MT_GGUF_VALUE_I32:
        return (uint64_t)(int64_t)(int32_t)number;
    default:
        return number;
    }
}

/* What the functions below share. */
struct reading {
    struct mt_gguf_bytes *bytes;
    struct mt_arena *arena;
    struct mt_error *error;
};

static int fail_memory(const struct reading *r)
{
    return mt_fail(r->error, MT_ENOMEM, r->bytes->at, "%s: out of memory for its metadata",
                   r->bytes->path);
}

static int fail_value(const struct reading *r, const struct mt_gguf_pair *pair, uint64_t at,
                      const char *what)
{
    return mt_fail(r->error, MT_EFORMAT, at, "%s: the value of '%.80s' at byte %llu %s",
                   r->bytes->path, pair->key, (unsigned long long)at, what);
}

static int read_key(const struct reading *r, struct mt_gguf_pair *pair)
{
    struct mt_gguf_bytes *bytes = r->bytes;
    uint64_t length;
    pair->at = bytes->at;
    int code = mt_gguf_length(bytes, "a key", &length, r->error);
    if (code)
        return code;
    if (length == 0 || length > KEY_MAX)
        return mt_fail(r->error, MT_EFORMAT, pair->at,
                       "%s: the key at byte %llu is %llu bytes long, expected 1 to %d", bytes->path,
                       (unsigned long long)pair->at, (unsigned long long)length, KEY_MAX);
    code = mt_gguf_need(bytes, length, "a key", r->error);
    if (code)
        return code;
    const char *key = (const char *)mt_gguf_here(bytes);
    if (!mt_is_text(key, (size_t)length))
        return mt_fail(r->error, MT_EFORMAT, pair->at,
                       "%s: the key at byte %llu is not valid UTF-8", bytes->path,
                       (unsigned long long)pair->at);
    pair->key = mt_arena_copy(r->arena, key, (size_t)length);
    pair->key_length = (uint32_t)length;
    bytes->at += length;
    return pair->key ? 0 : fail_memory(r);
}

static int read_type(const struct reading *r, const struct mt_gguf_pair *pair, uint8_t *type)
{
    uint64_t number;
    uint64_t at = r->bytes->at;
    int code = mt_gguf_number(r->bytes, 4, "the type of a value", &number, r->error);
    if (code)
        return code;
    if (number >= MT_GGUF_VALUE_TYPES)
        return mt_fail(r->error, MT_EFORMAT, at,
                       "%s: the value of '%.80s' at byte %llu has type %llu, the last is %d",
                       r->bytes->path, pair->key, (unsigned long long)at,
                       (unsigned long long)number, MT_GGUF_VALUE_TYPES - 1);
    *type = (uint8_t)number;
    return 0;
}

static int read_scalar(const struct reading *r, const struct mt_gguf_pair *pair, uint8_t type,
                       uint64_t *value)
{
    uint64_t at = r->bytes->at;
    uint64_t number;
    int code = mt_gguf_number(r->bytes, widths[type], "a value", &number, r->error);
    if (code)
        return code;
    if (type == MT_GGUF_VALUE_BOOL && number > 1)
        return fail_value(r, pair, at, "is a bool other than 0 and 1");
    *value = widen(number, type);
    return 0;
}

/* A text that the tokenizer has no use for, and that is short. */
static int is_kept(const struct mt_gguf_pair *pair, uint64_t length)
{
    return length <= MT_GGUF_STRING_MAX && strncmp(pair->key, "tokenizer.", 10) != 0;
}

static int read_string(const struct reading *r, struct mt_gguf_pair *pair)
{
    uint64_t length;
    int code = mt_gguf_length(r->bytes, "a text", &length, r->error);
    if (code)
        return code;
    if (is_kept(pair, length)) {
        code = mt_gguf_need(r->bytes, length, "a text", r->error);
        if (code)
            return code;
        const char *text = length ? (const char *)mt_gguf_here(r->bytes) : "";
        if (mt_is_text(text, (size_t)length)) {
            pair->text = mt_arena_copy(r->arena, text, (size_t)length);
            if (!pair->text)
                return fail_memory(r);
        }
    }
    r->bytes->at += length;
    return 0;
}

/* Passes over strings that are in the buffer as a whole; returns how many. */
static uint64_t skip_buffered(struct mt_gguf_bytes *bytes, uint64_t n)
{
    const uint8_t *at = mt_gguf_here(bytes);
    const uint8_t *end = bytes->data + bytes->length;
    uint64_t i = 0;
    while (i < n && end - at >= 8) {
        uint64_t length = mt_gguf_number_at(at, 8, bytes->big_endian);
        if (length > (uint64_t)(end - at) - 8)
            break;
        at += 8 + length;
        i++;
    }
    bytes->at += (uint64_t)(at - mt_gguf_here(bytes));
    return i;
}

static int skip_strings(const struct reading *r, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t length;
        if (r->bytes->at < r->bytes->start + r->bytes->length)
            i += skip_buffered(r->bytes, n - i);
        if (i == n)
            break;
        int code = mt_gguf_length(r->bytes, "a text of an array", &length, r->error);
        if (code)
            return code;
        r->bytes->at += length;
    }
    return 0;
}

static int keep_items(const struct reading *r, struct mt_gguf_pair *pair)
{
    int64_t *items = mt_arena_array(r->arena, (size_t)pair->n_items, sizeof *items);
    if (!items)
        return fail_memory(r);
    for (uint64_t i = 0; i < pair->n_items; i++) {
        uint64_t value = 0;
        int code = read_scalar(r, pair, pair->item_type, &value);
        if (code)
            return code;
        items[i] = (int64_t)value;
    }
    pair->items = items;
    return 0;
}

static int read_array(const struct reading *r, struct mt_gguf_pair *pair)
{
    struct mt_gguf_bytes *bytes = r->bytes;
    int code = read_type(r, pair, &pair->item_type);
    uint64_t at = bytes->at;
    if (!code)
        code = mt_gguf_number(bytes, 8, "the length of an array", &pair->n_items, r->error);
    if (code)
        return code;
    if (pair->item_type == MT_GGUF_VALUE_ARRAY)
        return fail_value(r, pair, at, "is an array of arrays, which GGUF readers do not take");
    int is_text = pair->item_type == MT_GGUF_VALUE_STRING;
    uint64_t width = is_text ? 8 : widths[pair->item_type];
    uint64_t room = (bytes->source->size_bytes - bytes->at) / width;
    if (pair->n_items > room)
        return mt_fail(
            r->error, MT_EFORMAT, at,
            "%s: the array '%.80s' at byte %llu has %llu items, the rest of the file has "
            "room for %llu",
            bytes->path, pair->key, (unsigned long long)at, (unsigned long long)pair->n_items,
            (unsigned long long)room);
    if (is_text)
        return skip_strings(r, pair->n_items);
    if (pair->n_items <= MT_GGUF_ITEMS_MAX && !is_float(pair->item_type) && is_kept(pair, 0))
        return keep_items(r, pair);
    bytes->at += pair->n_items * width;
    return 0;
}

static int read_value(const struct reading *r, struct mt_gguf_pair *pair)
{
    int code = read_type(r, pair, &pair->type);
    if (code)
        return code;
    if (pair->type == MT_GGUF_VALUE_STRING)
        return read_string(r, pair);
    if (pair->type == MT_GGUF_VALUE_ARRAY)
        return read_array(r, pair);
    return read_scalar(r, pair, pair->type, &pair->number);
}

static const char *key_of(const void *argument, uint32_t number, size_t *length)
{
    const struct mt_gguf_pairs *pairs = argument;
    *length = pairs->items[number].key_length;
    return pairs->items[number].key;
}

static int add_pair(struct mt_gguf_pairs *pairs, const struct reading *r,
                    const struct mt_gguf_pair *pair)
{
    if (mt_array_reserve(pairs->items, pairs->n, pairs->capacity, 64) < 0)
        return fail_memory(r);
    pairs->items[pairs->n] = *pair;
    uint32_t other = 0;
    int code = mt_names_add(&pairs->keys, (uint32_t)pairs->n,
                            mt_names_hash(&pairs->keys, (uint32_t)pairs->n), &other);
    if (code == 1)
        return mt_fail(r->error, MT_EFORMAT, pair->at,
                       "%s: the key '%.80s' at byte %llu is there already, at byte %llu",
                       r->bytes->path, pair->key, (unsigned long long)pair->at,
                       (unsigned long long)pairs->items[other].at);
    if (code == MT_ENOMEM)
        return fail_memory(r);
    if (code)
        return mt_fail(r->error, code, pair->at, "%s: its keys are made to collide",
                       r->bytes->path);
    pairs->n++;
    return 0;
}

int mt_gguf_read_pairs(struct mt_gguf_pairs *pairs, struct mt_arena *arena,
                       struct mt_gguf_bytes *bytes, uint64_t n, struct mt_error *error)
{
    const struct reading r = {bytes, arena, error};
    uint64_t room = (bytes->source->size_bytes - bytes->at) / PAIR_LEAST;
    pairs->path = bytes->path;
    pairs->keys.name_of = key_of;
    pairs->keys.argument = pairs;
    if (n > room)
        return mt_fail(error, MT_EFORMAT, 16,
                       "%s: the header counts %llu key and value pairs at byte 16, the file has "
                       "room for %llu",
                       bytes->path, (unsigned long long)n, (unsigned long long)room);
    for (uint64_t i = 0; i < n; i++) {
        struct mt_gguf_pair pair = {0};
        int code = read_key(&r, &pair);
        if (!code)
            code = read_value(&r, &pair);
        if (!code)
            code = add_pair(pairs, &r, &pair);
        if (code)
            return code;
    }
    return 0;
}

void mt_gguf_pairs_finish(struct mt_gguf_pairs *pairs)
{
    mt_names_finish(&pairs->keys);
    free(pairs->items);
    memset(pairs, 0, sizeof *pairs);
}

const struct mt_gguf_pair *mt_gguf_find(const struct mt_gguf_pairs *pairs, const char *key)
{
    uint32_t number = mt_names_find(&pairs->keys, key, strlen(key));
    return number == MT_NAMES_NONE ? NULL : &pairs->items[number];
}

int mt_gguf_get(const struct mt_gguf_pairs *pairs, const char *key, uint64_t *value,
                struct mt_error *error)
{
    const struct mt_gguf_pair *pair = mt_gguf_find(pairs, key);
    if (!pair)
        return 0;
    int is_number = pair->type != MT_GGUF_VALUE_STRING && pair->type != MT_GGUF_VALUE_ARRAY &&
                    !is_float(pair->type);
    int is_signed = pair->type != MT_GGUF_VALUE_U64;
    if (!is_number || (is_signed && (int64_t)pair->number < 0))
        return mt_fail(error, MT_EFORMAT, pair->at,
                       "%s: '%.80s' at byte %llu is not a number that counts something",
                       pairs->path, key, (unsigned long long)pair->at);
    *value = pair->number;
    return 1;
}
