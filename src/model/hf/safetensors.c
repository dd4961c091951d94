/* SPDX-License-Identifier: MIT */
/* The headers of safetensors files.
 *
 *   file   = u64:length header data
 *   header = JSON {"NAME": {"dtype": T, "shape": [N...], "data_offsets": [BEGIN, END]}, ...,
 *                  "__metadata__": {...}}
 *
 * The length is little-endian, offsets count from the data. Names stay where they stand in the
 * header. Knows the grammar and the index of shards, no model. */
#include "safetensors.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "config.h"

/* One file being read. */
struct header {
    struct mt_st_list *list;
    const char *path;
    struct mt_json json;
    uint64_t data_bytes;
    uint64_t data_at;
    uint32_t file;
    size_t first; /* of its tensors in the list */
    int unsorted;
    uint64_t end; /* of the last tensor */
};

/* An entry's fields as they come. */
struct entry {
    struct mt_json_token key;
    struct mt_json_token dtype;
    uint64_t dims[MT_MODEL_DIMENSIONS_MAX];
    unsigned n_dims;
    uint64_t span[2];
    unsigned seen; /* bits: dtype, shape, data_offsets */
};

static int fail_at(const struct header *header, const struct mt_json_token *token, int code,
                   const char *what, struct mt_error *error)
{
    return mt_fail(error, code, mt_json_offset(&header->json, token), "%s: tensor \"%.*s\": %s",
                   header->path, (int)(token->length < 200 ? token->length : 200), token->text,
                   what);
}

static int take_numbers(struct header *header, const struct entry *entry, uint64_t *numbers,
                        unsigned limit, unsigned *n, struct mt_error *error)
{
    struct mt_json_token token;
    int code = mt_json_next(&header->json, &token, error);
    *n = 0;
    if (!code && token.type != MT_JSON_ARRAY)
        return fail_at(header, &entry->key, MT_EFORMAT, "expected an array of numbers", error);
    while (!code) {
        code = mt_json_next(&header->json, &token, error);
        if (code || token.type == MT_JSON_ARRAY_END)
            return code;
        if (*n == limit)
            return fail_at(header, &entry->key, MT_ELIMIT, "too many numbers in an array", error);
        if (mt_json_u64(&token, &numbers[*n]))
            return fail_at(header, &entry->key, MT_EFORMAT,
                           "expected a whole number from 0 to 2^64 - 1", error);
        ++*n;
    }
    return code;
}

static int take_entry_field(struct header *header, struct entry *entry,
                            const struct mt_json_token *key, struct mt_error *error)
{
    struct mt_json_token value;
    unsigned n;
    unsigned bit = mt_json_is(key, "dtype")          ? 1
                   : mt_json_is(key, "shape")        ? 2
                   : mt_json_is(key, "data_offsets") ? 4
                                                     : 0;
    if (bit & entry->seen)
        return fail_at(header, &entry->key, MT_EFORMAT, "a field occurs twice", error);
    entry->seen |= bit;
    if (bit == 2)
        return take_numbers(header, entry, entry->dims, MT_MODEL_DIMENSIONS_MAX, &entry->n_dims,
                            error);
    if (bit == 4) {
        int code = take_numbers(header, entry, entry->span, 2, &n, error);
        if (!code && n != 2)
            return fail_at(header, &entry->key, MT_EFORMAT, "expected two data_offsets", error);
        return code;
    }
    int code = mt_json_next(&header->json, &value, error);
    if (code || bit == 0)
        return code ? code : mt_json_finish_value(&header->json, &value, error);
    if (value.type != MT_JSON_STRING)
        return fail_at(header, &entry->key, MT_EFORMAT, "expected dtype to be a string", error);
    entry->dtype = value;
    return 0;
}

static int take_entry(struct header *header, struct entry *entry, struct mt_error *error)
{
    struct mt_json_token token;
    int code = mt_json_next(&header->json, &token, error);
    if (!code && token.type != MT_JSON_OBJECT)
        return fail_at(header, &entry->key, MT_EFORMAT, "expected an object", error);
    while (!code) {
        code = mt_json_next(&header->json, &token, error);
        if (code || token.type == MT_JSON_OBJECT_END)
            break;
        code = take_entry_field(header, entry, &token, error);
    }
    if (!code && entry->seen != 7)
        return fail_at(header, &entry->key, MT_EFORMAT, "expected dtype, shape and data_offsets",
                       error);
    return code;
}

/* The name of a type that is not known, one text for each such type. */
static int unknown_type(struct mt_st_list *list, const struct mt_json_token *dtype)
{
    int length = (int)(dtype->length < 32 ? dtype->length : 32);
    char *text = mt_arena_printf(&list->arena, "unknown type %.*s", length, dtype->text);
    size_t i = 0;
    if (!text)
        return MT_ENOMEM;
    while (i < list->n_unknown && strcmp(list->unknown[i], text) != 0)
        i++;
    if (i == list->n_unknown && i < MT_ST_UNKNOWN_TYPES) {
        list->unknown[i] = i + 1 < MT_ST_UNKNOWN_TYPES ? text : "unknown type";
        list->n_unknown++;
    }
    if (i == MT_ST_UNKNOWN_TYPES)
        i--;
    return MT_ST_TYPES + (int)i;
}

static int check_sizes(const struct header *header, const struct entry *entry, enum mt_st_type type,
                       struct mt_error *error)
{
    uint64_t elements;
    uint64_t bytes;
    if (entry->span[0] > entry->span[1] || entry->span[1] > header->data_bytes)
        return fail_at(header, &entry->key, MT_EFORMAT, "data_offsets lie outside of the file",
                       error);
    if (mt_st_elements(entry->dims, entry->n_dims, &elements))
        return fail_at(header, &entry->key, MT_ELIMIT, "more than 2^64 elements", error);
    if (type == MT_ST_TYPES)
        return 0;
    if (mt_st_type_bytes(type, elements, &bytes))
        return fail_at(header, &entry->key, MT_ELIMIT, "more than 2^61 bytes", error);
    if (bytes != entry->span[1] - entry->span[0])
        return mt_fail(error, MT_EFORMAT, mt_json_offset(&header->json, &entry->key),
                       "%s: tensor \"%.*s\" has %llu bytes by its data_offsets, expected %llu by "
                       "its shape",
                       header->path, (int)(entry->key.length < 200 ? entry->key.length : 200),
                       entry->key.text, (unsigned long long)(entry->span[1] - entry->span[0]),
                       (unsigned long long)bytes);
    return 0;
}

static const char *name_in_arena(struct mt_st_list *list, const struct mt_json_token *key,
                                 size_t *length)
{
    char *name = mt_arena_alloc(&list->arena, key->length + 1);
    if (name)
        *length = mt_json_unescape(key, name);
    return name;
}

static int add_entry(struct header *header, const struct entry *entry, struct mt_error *error)
{
    struct mt_st_list *list = header->list;
    enum mt_st_type type = mt_st_type_find(entry->dtype.text, entry->dtype.length);
    int code = check_sizes(header, entry, type, error);
    if (code)
        return code;
    int number = type == MT_ST_TYPES ? unknown_type(list, &entry->dtype) : (int)type;
    uint64_t *dims = mt_arena_array(&list->arena, entry->n_dims, sizeof *dims);
    size_t length = entry->key.length;
    const char *name =
        entry->key.escaped ? name_in_arena(list, &entry->key, &length) : entry->key.text;
    if (number < 0 || !dims || !name)
        return mt_out_of_memory_for(error, header->path);
    if (length > UINT16_MAX)
        return fail_at(header, &entry->key, MT_ELIMIT, "a name of more than 65535 bytes", error);
    memcpy(dims, entry->dims, entry->n_dims * sizeof *dims);
    struct mt_st_tensor tensor = {.name = name,
                                  .dims = dims,
                                  .offset = header->data_at + entry->span[0],
                                  .bytes = entry->span[1] - entry->span[0],
                                  .file = header->file,
                                  .name_length = (uint16_t)length,
                                  .type = (uint8_t)number,
                                  .n_dims = (uint8_t)entry->n_dims};
    if (entry->span[0] < header->end)
        header->unsorted = 1;
    header->end = entry->span[1];
    code = mt_st_list_add(list, &tensor);
    return code ? mt_fail(error, code, MT_NO_OFFSET, "%s: out of memory", header->path) : 0;
}

static int take_tensors(struct header *header, struct mt_error *error)
{
    struct mt_json_token token;
    int code = mt_json_next(&header->json, &token, error);
    if (!code && token.type != MT_JSON_OBJECT)
        return mt_fail(error, MT_EFORMAT, 8, "%s: expected a JSON object at byte 8", header->path);
    while (!code) {
        struct entry entry = {.seen = 0};
        code = mt_json_next(&header->json, &entry.key, error);
        if (code || entry.key.type == MT_JSON_OBJECT_END)
            break;
        if (mt_json_is(&entry.key, "__metadata__")) {
            code = mt_json_next(&header->json, &token, error);
            if (!code)
                code = mt_json_finish_value(&header->json, &token, error);
            continue;
        }
        code = take_entry(header, &entry, error);
        if (!code)
            code = add_entry(header, &entry, error);
    }
    return code ? code : mt_json_next(&header->json, &token, error);
}

static int compare_offsets(const void *left, const void *right)
{
    const struct mt_st_tensor *a = *(const struct mt_st_tensor *const *)left;
    const struct mt_st_tensor *b = *(const struct mt_st_tensor *const *)right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int fail_overlap(const struct header *header, const struct mt_st_tensor *a,
                        const struct mt_st_tensor *b, struct mt_error *error)
{
    return mt_fail(error, MT_EFORMAT, b->offset,
                   "%s: the tensors \"%.*s\" and \"%.*s\" share bytes from byte %llu on",
                   header->path, (int)(a->name_length < 150 ? a->name_length : 150), a->name,
                   (int)(b->name_length < 150 ? b->name_length : 150), b->name,
                   (unsigned long long)b->offset);
}

/* Only a header whose entries are not in the order of their data needs sorting. */
static int check_overlaps(const struct header *header, struct mt_error *error)
{
    size_t n = header->list->n - header->first;
    if (!header->unsorted || n < 2)
        return 0;
    const struct mt_st_tensor **sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return mt_out_of_memory_for(error, header->path);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &header->list->tensors[header->first + i];
    qsort(sorted, n, sizeof *sorted, compare_offsets);
    int code = 0;
    for (size_t i = 1; i < n && !code; i++) {
        if (sorted[i - 1]->bytes && sorted[i]->bytes &&
            sorted[i - 1]->offset + sorted[i - 1]->bytes > sorted[i]->offset)
            code = fail_overlap(header, sorted[i - 1], sorted[i], error);
    }
    free(sorted);
    return code;
}

/* Named in an index as a part of a model, and something else. */
static int check_kind(const struct mt_model_source *source, const char *path,
                      struct mt_error *error)
{
    char bytes[48];
    size_t length = source->size_bytes < sizeof bytes ? (size_t)source->size_bytes : sizeof bytes;
    int code = source->read(source->argument, 0, bytes, length, error);
    const struct mt_file_kind *kind = code ? NULL : mt_file_kind_of(bytes, length);
    if (!kind || bytes[8] == '{')
        return code;
    return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "%s: it is %s, not a safetensors file%s%s",
                   path, kind->what, kind->advice ? "; " : "", kind->advice ? kind->advice : "");
}

static int read_length(const struct mt_model_source *source, const char *path, uint64_t *length,
                       struct mt_error *error)
{
    uint64_t n;
    if (source->size_bytes < 10)
        return mt_fail(error, MT_ETRUNCATED, source->size_bytes,
                       "%s: has %llu bytes, expected a safetensors header", path,
                       (unsigned long long)source->size_bytes);
    int code = source->read(source->argument, 0, &n, sizeof n, error);
    if (code)
        return code;
    n = le64toh(n);
    int kind = check_kind(source, path, error);
    if (kind)
        return kind;
    if (n < 2)
        return mt_fail(error, MT_EFORMAT, 0, "%s: a header of %llu bytes, expected a JSON object",
                       path, (unsigned long long)n);
    if (n > MT_ST_HEADER_MAX)
        return mt_fail(error, MT_ELIMIT, 0,
                       "%s: the header has %llu bytes; the format allows 100000000", path,
                       (unsigned long long)n);
    if (n > source->size_bytes - 8)
        return mt_fail(error, MT_ETRUNCATED, 8, "%s: the header has %llu bytes, more than the file",
                       path, (unsigned long long)n);
    *length = n;
    return 0;
}

int mt_st_read_header(struct mt_st_list *list, const struct mt_model_source *source,
                      const char *path, uint32_t file, uint64_t *header_bytes,
                      struct mt_error *error)
{
    uint64_t length = 0;
    int code = read_length(source, path, &length, error);
    if (code)
        return code;
    char *text = NULL;
    code = mt_hf_read_span(source, path, 8, (size_t)length, &text, error);
    if (code)
        return code;
    if (mt_st_list_keep(list, text))
        return mt_out_of_memory_for(error, path);
    struct header header = {.list = list,
                            .path = path,
                            .data_at = 8 + length,
                            .data_bytes = source->size_bytes - 8 - length,
                            .file = file,
                            .first = list->n};
    mt_json_start(&header.json, path, text, (size_t)length, 8);
    code = take_tensors(&header, error);
    if (!code)
        code = check_overlaps(&header, error);
    if (!code)
        *header_bytes += 8 + length;
    return code;
}
