/* SPDX-License-Identifier: MIT */
/* Where the tensors of GGUF files lie: that they do not overlap, that the file has them all, that
 * no two are called the same. Knows records, not the bytes they were read from. */
#include "gguf.h"

#include "base/error.h"
#include "model/ggml_type.h"

#include <stdio.h>
#include <stdlib.h>

#define NAMES_AHEAD 16 /* that are looked up before they are needed */

static const uint8_t *kept_of(const struct mt_gguf *gguf, const struct mt_gguf_record *record)
{
    return gguf->kept + record->kept_at;
}

uint32_t mt_gguf_type_of(const struct mt_gguf *gguf, const struct mt_gguf_record *record)
{
    uint32_t type;
    memcpy(&type, kept_of(gguf, record), sizeof type);
    return type;
}

uint64_t mt_gguf_dim_of(const struct mt_gguf *gguf, const struct mt_gguf_record *record,
                        uint32_t index)
{
    uint64_t dim = 1;
    if (index < record->n_dims)
        memcpy(&dim, kept_of(gguf, record) + 4 + 8 * (size_t)index, sizeof dim);
    return dim;
}

const char *mt_gguf_name_of(const struct mt_gguf *gguf, const struct mt_gguf_record *record)
{
    return (const char *)kept_of(gguf, record) + 4 + 8 * (size_t)record->n_dims;
}

static uint64_t place_of(const struct mt_gguf *gguf, const struct mt_gguf_record *record)
{
    return gguf->parts[record->part].infos_at + record->info_at;
}

int mt_gguf_fail_tensor(const struct mt_gguf *gguf, const struct mt_gguf_record *record, int code,
                        struct mt_error *error, const char *what)
{
    uint64_t at = place_of(gguf, record);
    int shown = record->name_length < 80 ? record->name_length : 80;
    return mt_fail(error, code, at, "%s: the tensor '%.*s' at byte %llu %s",
                   gguf->parts[record->part].path, shown, mt_gguf_name_of(gguf, record),
                   (unsigned long long)at, what);
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
    if (record->bytes == 0) { /* of an unknown type */
        record->bytes = limit > record->offset ? limit - record->offset : 0;
        return 0;
    }
    if (!next || record->offset + record->bytes <= limit)
        return 0;
    char what[160];
    snprintf(what, sizeof what, "overlaps '%.*s', which begins at byte %llu of the file",
             next->name_length < 60 ? next->name_length : 60, mt_gguf_name_of(gguf, next),
             (unsigned long long)limit);
    return mt_gguf_fail_tensor(gguf, record, MT_EFORMAT, error, what);
}

/* `order` is NULL where the records stand in the order of their offsets. */
static int check_pairs(const struct mt_gguf *gguf, size_t first, struct mt_gguf_record **order,
                       struct mt_error *error)
{
    int code = 0;
    for (size_t i = first; i < gguf->n && !code; i++) {
        int is_last = i + 1 == gguf->n;
        struct mt_gguf_record *record = order ? order[i - first] : &gguf->records[i];
        struct mt_gguf_record *next = NULL;
        if (!is_last)
            next = order ? order[i - first + 1] : record + 1;
        code = check_pair(gguf, record, next, error);
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
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "%s: out of memory for its tensors",
                       gguf->parts[gguf->n_parts - 1].path);
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
        packed += (record->bytes + part->alignment - 1) & ~(part->alignment - 1);
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
    return mt_gguf_fail_tensor(gguf, past, MT_EFORMAT, error, "lies beyond the end of the file");
}

static int place(const struct mt_gguf *gguf, struct mt_gguf_record *record, struct mt_error *error)
{
    const struct mt_gguf_part *part = &gguf->parts[record->part];
    uint64_t end;
    if ((record->offset & (part->alignment - 1)) != 0)
        return mt_gguf_fail_tensor(gguf, record, MT_EFORMAT, error,
                                   "has an offset that is no multiple of general.alignment");
    if (__builtin_add_overflow(part->data_at, record->offset, &record->offset) ||
        __builtin_add_overflow(record->offset, record->bytes, &end) || end > INT64_MAX)
        return mt_gguf_fail_tensor(gguf, record, MT_EFORMAT, error, "lies beyond byte 2^63");
    return 0;
}

int mt_gguf_place_tensors(struct mt_gguf *gguf, size_t first, struct mt_error *error)
{
    int code = 0;
    for (size_t i = first; i < gguf->n && !code; i++)
        code = place(gguf, &gguf->records[i], error);
    if (!code)
        code = check_overlap(gguf, first, error);
    return code ? code : check_end(gguf, first, error);
}

static const char *name_of(const void *argument, uint32_t number, size_t *length)
{
    const struct mt_gguf *gguf = argument;
    const struct mt_gguf_record *record = &gguf->records[number];
    *length = record->name_length;
    return mt_gguf_name_of(gguf, record);
}

static int add_name(const struct mt_gguf *gguf, struct mt_names *names, uint32_t number,
                    uint32_t hash, struct mt_error *error)
{
    uint32_t other = 0;
    int code = mt_names_add(names, number, hash, &other);
    const struct mt_gguf_record *record = &gguf->records[number];
    if (code == MT_ELIMIT)
        return mt_gguf_fail_tensor(gguf, record, code, error,
                                   "has a name made to collide with others");
    if (code != 1)
        return code;
    char what[160];
    snprintf(what, sizeof what, "has the name of another, at byte %llu%s",
             (unsigned long long)place_of(gguf, &gguf->records[other]),
             gguf->records[other].part != record->part ? " of another part" : "");
    return mt_gguf_fail_tensor(gguf, record, MT_EFORMAT, error, what);
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

int mt_gguf_tensor_at(const struct mt_model *model, uint64_t index, struct mt_model_tensor *tensor)
{
    const struct mt_gguf *gguf = model->tensors;
    if (index >= gguf->n)
        return MT_EARG;
    const struct mt_gguf_record *record = &gguf->records[index];
    const struct mt_ggml_type *type = mt_ggml_type_by_number(mt_gguf_type_of(gguf, record));
    int role = model->description.is_projector ? MT_TENSOR_PROJECTOR : record->role;
    *tensor = (struct mt_model_tensor){
        .name = mt_gguf_name_of(gguf, record),
        .name_length = record->name_length,
        .type = type ? type->name : mt_gguf_name_of(gguf, record) + record->name_length,
        .type_known = type != NULL,
        .n_dims = record->n_dims ? record->n_dims : 1,
        .elements = 1,
        .bytes = record->bytes,
        .offset = record->offset,
        .file = record->part,
        .layer = record->layer == MT_GGUF_NO_LAYER ? MT_NO_LAYER : record->layer,
        .role = (enum mt_tensor_role)role};
    for (uint32_t i = 0; i < MT_MODEL_DIMENSIONS_MAX; i++) {
        tensor->dims[i] = mt_gguf_dim_of(gguf, record, i);
        tensor->elements *= tensor->dims[i];
    }
    return 0;
}
