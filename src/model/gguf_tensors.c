/* SPDX-License-Identifier: MIT */
/* The tensors of GGUF files: what they are called, where they lie, and that this can be so. Knows
 * nothing of what a tensor is for, beyond asking for its role. */
#include "model/gguf.h"

#include "base/error.h"
#include "model/ggml_type.h"
#include "model/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 1024
#define INFO_LEAST     25 /* bytes of the shortest description: a name of one byte, no dimension */
#define INFO_USUAL     80
#define RECORDS_AHEAD  (1 << 16)
#define NAMES_AHEAD    16
#define TENSORS_MAX    (UINT32_C(1) << 24)

void mt_gguf_decode(const uint8_t *at, int big_endian, struct mt_gguf_info *info)
{
    const uint8_t *from = at;
    info->name_length = (uint32_t)mt_gguf_number_at(at, 8, big_endian);
    info->name = (const char *)at + 8;
    at += 8 + info->name_length;
    info->n_dims = (uint32_t)mt_gguf_number_at(at, 4, big_endian);
    at += 4;
    for (uint32_t i = 0; i < 4; i++)
        info->dims[i] = i < info->n_dims ? mt_gguf_number_at(at + 8 * i, 8, big_endian) : 1;
    at += 8 * info->n_dims;
    info->type = (uint32_t)mt_gguf_number_at(at, 4, big_endian);
    info->offset = mt_gguf_number_at(at + 4, 8, big_endian);
    info->length = (size_t)(at + 12 - from);
}

static void decode_record(const struct mt_gguf *gguf, const struct mt_gguf_record *record,
                          struct mt_gguf_info *info)
{
    const struct mt_gguf_part *part = &gguf->parts[record->part];
    mt_gguf_decode(part->infos + record->info_at, part->big_endian, info);
}

static uint64_t place_of(const struct mt_gguf *gguf, const struct mt_gguf_record *record)
{
    return gguf->parts[record->part].infos_at + record->info_at;
}

/* "PATH: the tensor 'NAME' at byte N " and a sentence's end. */
static int fail_tensor(const struct mt_gguf *gguf, const struct mt_gguf_record *record, int code,
                       struct mt_error *error, const char *what)
{
    struct mt_gguf_info info;
    decode_record(gguf, record, &info);
    uint64_t at = place_of(gguf, record);
    int shown = info.name_length < 80 ? (int)info.name_length : 80;
    return mt_fail(error, code, at, "%s: the tensor '%.*s' at byte %llu %s",
                   gguf->parts[record->part].path, shown, info.name, (unsigned long long)at, what);
}

static int read_name(struct mt_gguf_bytes *bytes, struct mt_error *error)
{
    uint64_t at = bytes->at;
    uint64_t length;
    int code = mt_gguf_length(bytes, "the name of a tensor", &length, error);
    if (code)
        return code;
    if (length == 0 || length > NAME_MAX_BYTES)
        return mt_fail(error, MT_EFORMAT, at,
                       "%s: the name of the tensor at byte %llu is %llu bytes long, expected 1 to "
                       "%d",
                       bytes->path, (unsigned long long)at, (unsigned long long)length,
                       NAME_MAX_BYTES);
    code = mt_gguf_need(bytes, length + 4, "a tensor", error);
    if (code)
        return code;
    if (!mt_is_text((const char *)mt_gguf_here(bytes), (size_t)length))
        return mt_fail(error, MT_EFORMAT, at,
                       "%s: the name of the tensor at byte %llu is not valid UTF-8", bytes->path,
                       (unsigned long long)at);
    bytes->at += length;
    return 0;
}

/* Moves over one description and checks that it is one. */
static int read_info(struct mt_gguf_bytes *bytes, struct mt_error *error)
{
    int code = read_name(bytes, error);
    if (code)
        return code;
    uint64_t at = bytes->at;
    uint64_t n_dims = mt_gguf_number_at(mt_gguf_here(bytes), 4, bytes->big_endian);
    if (n_dims > 4)
        return mt_fail(error, MT_EFORMAT, at,
                       "%s: a tensor with %llu dimensions at byte %llu, expected at most 4",
                       bytes->path, (unsigned long long)n_dims, (unsigned long long)at);
    code = mt_gguf_need(bytes, 4 + 8 * n_dims + 12, "a tensor", error);
    bytes->at += 4 + 8 * n_dims + 12;
    return code;
}

/* Adds one of `n` that are still to come. */
static struct mt_gguf_record *add_record(struct mt_gguf *gguf, uint64_t n)
{
    if (gguf->n == gguf->capacity) {
        size_t more = n < RECORDS_AHEAD ? (size_t)n : RECORDS_AHEAD;
        size_t capacity = gguf->capacity + (more > gguf->capacity ? more : gguf->capacity);
        struct mt_gguf_record *records = realloc(gguf->records, capacity * sizeof *records);
        if (!records)
            return NULL;
        gguf->records = records;
        gguf->capacity = capacity;
    }
    return &gguf->records[gguf->n++];
}

static int check_count(const struct mt_gguf *gguf, const struct mt_gguf_bytes *bytes, uint64_t n,
                       struct mt_error *error)
{
    uint64_t room = (bytes->source->size_bytes - bytes->at) / INFO_LEAST;
    if (n > room)
        return mt_fail(error, MT_EFORMAT, 8,
                       "%s: the header counts %llu tensors at byte 8, the file has room for %llu",
                       bytes->path, (unsigned long long)n, (unsigned long long)room);
    if (n > TENSORS_MAX - gguf->n)
        return mt_fail(error, MT_ELIMIT, 8, "%s: more than %lu tensors", bytes->path,
                       (unsigned long)TENSORS_MAX);
    return 0;
}

int mt_gguf_read_tensors(struct mt_gguf *gguf, struct mt_gguf_bytes *bytes, uint64_t n,
                         struct mt_error *error)
{
    int code = check_count(gguf, bytes, n, error);
    if (!code)
        code = mt_gguf_keep(bytes, n * INFO_USUAL, error);
    uint64_t infos_at = bytes->at;
    for (uint64_t i = 0; i < n && !code; i++) {
        struct mt_gguf_record *record = add_record(gguf, n - i);
        if (!record)
            return mt_fail(error, MT_ENOMEM, bytes->at, "%s: out of memory for its tensors",
                           bytes->path);
        *record = (struct mt_gguf_record){.info_at = (uint32_t)(bytes->at - infos_at),
                                          .part = (uint16_t)(gguf->n_parts - 1)};
        code = read_info(bytes, error);
    }
    if (code)
        return code;
    struct mt_gguf_part *part = &gguf->parts[gguf->n_parts - 1];
    part->infos_at = infos_at;
    part->infos = bytes->data;
    uint8_t *less = realloc(bytes->data, bytes->at > infos_at ? (size_t)(bytes->at - infos_at) : 1);
    if (less)
        part->infos = less;
    bytes->data = NULL;
    return 0;
}

/* Bytes and elements of a tensor whose type is known. */
static int size_tensor(const struct mt_gguf *gguf, const struct mt_gguf_record *record,
                       const struct mt_gguf_info *info, uint64_t *bytes, struct mt_error *error)
{
    const struct mt_ggml_type *type = mt_ggml_type_by_number(info->type);
    uint64_t elements = 1;
    int code = 0;
    for (int i = 0; i < 4; i++) {
        if (info->dims[i] == 0)
            return fail_tensor(gguf, record, MT_EFORMAT, error, "has a dimension of 0");
        if (__builtin_mul_overflow(elements, info->dims[i], &elements) || elements > INT64_MAX)
            code = MT_ELIMIT;
    }
    *bytes = 0;
    if (!code && type)
        code = mt_ggml_tensor_size(type, info->dims, 4, &elements, bytes);
    if (!code && *bytes > INT64_MAX)
        code = MT_ELIMIT;
    char what[96];
    if (code == MT_EARG)
        snprintf(what, sizeof what, "has rows of %llu elements, %s comes in blocks of %u",
                 (unsigned long long)info->dims[0], type->name, type->block_elements);
    else
        snprintf(what, sizeof what, "has more than 2^63 elements or bytes");
    return code ? fail_tensor(gguf, record, MT_EFORMAT, error, what) : 0;
}

static int place_tensor(const struct mt_gguf *gguf, struct mt_gguf_record *record,
                        struct mt_error *error)
{
    const struct mt_gguf_part *part = &gguf->parts[record->part];
    struct mt_gguf_info info;
    struct mt_model_tensor tensor;
    decode_record(gguf, record, &info);
    int code = size_tensor(gguf, record, &info, &record->bytes, error);
    if (code)
        return code;
    uint64_t end;
    if (__builtin_add_overflow(part->data_at, info.offset, &record->offset) ||
        __builtin_add_overflow(record->offset, record->bytes, &end) || end > INT64_MAX)
        return fail_tensor(gguf, record, MT_EFORMAT, error, "lies beyond byte 2^63");
    if (info.offset % part->alignment != 0)
        return fail_tensor(gguf, record, MT_EFORMAT, error,
                           "has an offset that is no multiple of general.alignment");
    mt_tensor_role_of_gguf(info.name, info.name_length, &tensor);
    record->role = (uint8_t)tensor.role;
    record->layer = tensor.layer;
    return 0;
}

static int by_offset(const void *left, const void *right)
{
    const struct mt_gguf_record *a = *(const struct mt_gguf_record *const *)left;
    const struct mt_gguf_record *b = *(const struct mt_gguf_record *const *)right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a->info_at > b->info_at) - (a->info_at < b->info_at);
}

/* One tensor and the one after it in the file, NULL where there is none. */
static int check_pair(const struct mt_gguf *gguf, struct mt_gguf_record *record,
                      const struct mt_gguf_record *next, struct mt_error *error)
{
    const struct mt_gguf_part *part = &gguf->parts[record->part];
    uint64_t limit = next ? next->offset : part->size_bytes;
    struct mt_gguf_info info;
    if (record->bytes == 0) { /* of an unknown type */
        record->bytes = limit > record->offset ? limit - record->offset : 0;
        return 0;
    }
    if (!next || record->offset + record->bytes <= limit)
        return 0;
    decode_record(gguf, next, &info);
    char what[160];
    snprintf(what, sizeof what, "overlaps '%.*s', which begins at byte %llu of the file",
             info.name_length < 60 ? (int)info.name_length : 60, info.name,
             (unsigned long long)limit);
    return fail_tensor(gguf, record, MT_EFORMAT, error, what);
}

/* `order` NULL where the tensors stand in the order of their offsets. */
static int check_pairs(const struct mt_gguf *gguf, size_t first, struct mt_gguf_record **order,
                       struct mt_error *error)
{
    int code = 0;
    for (size_t i = first; i < gguf->n && !code; i++) {
        int is_last = i + 1 == gguf->n;
        struct mt_gguf_record *record = order ? order[i - first] : &gguf->records[i];
        struct mt_gguf_record *next = order && !is_last ? order[i - first + 1] : record + 1;
        code = check_pair(gguf, record, is_last ? NULL : next, error);
    }
    return code;
}

static int is_in_order(const struct mt_gguf *gguf, size_t first)
{
    for (size_t i = first + 1; i < gguf->n; i++)
        if (gguf->records[i].offset < gguf->records[i - 1].offset)
            return 0;
    return 1;
}

static int check_overlap(const struct mt_gguf *gguf, size_t first, struct mt_error *error)
{
    if (is_in_order(gguf, first))
        return check_pairs(gguf, first, NULL, error);
    struct mt_gguf_record **order = malloc((gguf->n - first) * sizeof *order);
    if (!order)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory for the order of tensors");
    for (size_t i = first; i < gguf->n; i++)
        order[i - first] = &gguf->records[i];
    qsort(order, gguf->n - first, sizeof *order, by_offset);
    int code = check_pairs(gguf, first, order, error);
    free(order);
    return code;
}

/* A file whose tensors follow each other without a gap and go on past its end was cut short; else
 * it is wrong. */
static int check_end(const struct mt_gguf *gguf, size_t first, struct mt_error *error)
{
    const struct mt_gguf_part *part = &gguf->parts[gguf->n_parts - 1];
    const struct mt_gguf_record *past = NULL;
    uint64_t end = part->data_at;
    uint64_t packed = part->data_at;
    for (size_t i = first; i < gguf->n; i++) {
        const struct mt_gguf_record *record = &gguf->records[i];
        uint64_t record_end = record->offset + record->bytes;
        packed += (record->bytes + part->alignment - 1) / part->alignment * part->alignment;
        if (record_end > part->size_bytes && (!past || record->offset < past->offset))
            past = record;
        end = record_end > end ? record_end : end;
    }
    if (!past)
        return 0;
    if (end <= packed)
        return mt_fail(error, MT_ETRUNCATED, part->size_bytes,
                       "%s: %llu bytes are missing at its end: it has %llu, its tensors reach to "
                       "byte %llu. Was it downloaded in full?",
                       part->path, (unsigned long long)(end - part->size_bytes),
                       (unsigned long long)part->size_bytes, (unsigned long long)end);
    return fail_tensor(gguf, past, MT_EFORMAT, error, "lies beyond the end of the file");
}

int mt_gguf_place_tensors(struct mt_gguf *gguf, size_t first, struct mt_error *error)
{
    int code = 0;
    for (size_t i = first; i < gguf->n && !code; i++)
        code = place_tensor(gguf, &gguf->records[i], error);
    if (!code)
        code = check_overlap(gguf, first, error);
    return code ? code : check_end(gguf, first, error);
}

static const char *name_of(const void *argument, uint32_t number, size_t *length)
{
    const struct mt_gguf *gguf = argument;
    const struct mt_gguf_record *record = &gguf->records[number];
    const struct mt_gguf_part *part = &gguf->parts[record->part];
    const uint8_t *at = part->infos + record->info_at;
    *length = (size_t)mt_gguf_number_at(at, 8, part->big_endian);
    return (const char *)at + 8;
}

static int add_name(const struct mt_gguf *gguf, struct mt_names *names, uint32_t number,
                    uint32_t hash, struct mt_error *error)
{
    uint32_t other = 0;
    int code = mt_names_add(names, number, hash, &other);
    const struct mt_gguf_record *record = &gguf->records[number];
    char what[160];
    if (code == 1) {
        snprintf(what, sizeof what, "has the name of another, at byte %llu%s",
                 (unsigned long long)place_of(gguf, &gguf->records[other]),
                 gguf->records[other].part != record->part ? " of another part" : "");
        return fail_tensor(gguf, record, MT_EFORMAT, error, what);
    }
    return code == MT_ELIMIT
               ? fail_tensor(gguf, record, code, error, "has a name made to collide with others")
               : code;
}

int mt_gguf_check_names(const struct mt_gguf *gguf, struct mt_error *error)
{
    struct mt_names names = {.name_of = name_of, .argument = gguf};
    uint32_t hashes[NAMES_AHEAD] = {0};
    int code = mt_names_reserve(&names, gguf->n);
    for (size_t i = 0; i < gguf->n + NAMES_AHEAD && !code; i++) {
        uint32_t hash = hashes[i % NAMES_AHEAD];
        if (i < gguf->n)
            hashes[i % NAMES_AHEAD] = mt_names_hash(&names, (uint32_t)i);
        if (i >= NAMES_AHEAD)
            code = add_name(gguf, &names, (uint32_t)(i - NAMES_AHEAD), hash, error);
    }
    mt_names_finish(&names);
    return code == MT_ENOMEM ? mt_fail(error, code, MT_NO_OFFSET, "out of memory for names") : code;
}
