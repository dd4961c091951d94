/* SPDX-License-Identifier: MIT */
/* The descriptions of tensors in a GGUF header. Knows nothing of what a tensor is for, beyond
 * asking for its role, and not where its data lie. */
#include "gguf.h"

#include "base/error.h"
#include "model/ggml_type.h"
#include "model/utf8.h"

#include <stdio.h>
#include <stdlib.h>

#define TENSOR_NAME_MAX 1024
#define INFO_LEAST      25 /* bytes of the shortest description: a name of one byte, no dimension */
#define INFO_AFTER_NAME (4 + 4 * 8 + 12) /* bytes of the longest one behind its name */
#define TENSORS_MAX     (UINT32_C(1) << 24)
#define ROOM_AHEAD      (1 << 17) /* tensors that room is made for before they are seen */
#define TYPE_WORD_MAX   32
#define KEPT_MOST       (4 + 4 * 8 + TENSOR_NAME_MAX + TYPE_WORD_MAX)
#define KEPT_USUAL      64 /* kept bytes of a tensor */

/* A description as it stands in the file. */
struct info {
    const char *name;
    uint64_t at; /* in the file */
    uint32_t name_length;
    uint32_t n_dims;
    uint64_t dims[4];
    uint32_t type;
    uint64_t offset;
};

static int fail_info(const struct mt_gguf_bytes *bytes, const struct info *info,
                     struct mt_error *error, const char *what)
{
    int shown = info->name_length < 80 ? (int)info->name_length : 80;
    return mt_fail(error, MT_EFORMAT, info->at, "%s: the tensor '%.*s' at byte %llu %s",
                   bytes->path, shown, info->name, (unsigned long long)info->at, what);
}

static int read_name(struct mt_gguf_bytes *bytes, struct info *info, struct mt_error *error)
{
    uint64_t length;
    info->at = bytes->at;
    int code = mt_gguf_length(bytes, "the name of a tensor", &length, error);
    if (code)
        return code;
    if (length == 0 || length > TENSOR_NAME_MAX)
        return mt_fail(error, MT_EFORMAT, info->at,
                       "%s: the name of the tensor at byte %llu is %llu bytes long, expected 1 to "
                       "%d",
                       bytes->path, (unsigned long long)info->at, (unsigned long long)length,
                       TENSOR_NAME_MAX);
    uint64_t left = bytes->source->size_bytes - bytes->at;
    uint64_t wanted = length + INFO_AFTER_NAME;
    code = mt_gguf_need(bytes, wanted < left ? wanted : left, "a tensor", error);
    if (code)
        return code;
    info->name = (const char *)mt_gguf_here(bytes);
    info->name_length = (uint32_t)length;
    if (!mt_is_text(info->name, (size_t)length))
        return mt_fail(error, MT_EFORMAT, info->at,
                       "%s: the name of the tensor at byte %llu is not valid UTF-8", bytes->path,
                       (unsigned long long)info->at);
    bytes->at += length;
    return 0;
}

static int read_info(struct mt_gguf_bytes *bytes, struct info *info, struct mt_error *error)
{
    int code = read_name(bytes, info, error);
    if (!code)
        code = mt_gguf_need(bytes, 4, "a tensor", error);
    if (code)
        return code;
    const uint8_t *at = mt_gguf_here(bytes);
    info->n_dims = (uint32_t)mt_gguf_number_at(at, 4, bytes->big_endian);
    if (info->n_dims > 4) {
        char what[64];
        snprintf(what, sizeof what, "has %lu dimensions, expected at most 4",
                 (unsigned long)info->n_dims);
        return fail_info(bytes, info, error, what);
    }
    uint64_t length = 4 + 8 * (uint64_t)info->n_dims + 12;
    code = mt_gguf_need(bytes, length, "a tensor", error);
    if (code)
        return code;
    for (uint32_t i = 0; i < 4; i++)
        info->dims[i] =
            i < info->n_dims ? mt_gguf_number_at(at + 4 + 8 * i, 8, bytes->big_endian) : 1;
    at += length - 12;
    info->type = (uint32_t)mt_gguf_number_at(at, 4, bytes->big_endian);
    info->offset = mt_gguf_number_at(at + 4, 8, bytes->big_endian);
    bytes->at += length;
    return 0;
}

/* Fails for a tensor whose rows are no whole blocks, or one that is too large. */
static int fail_size(const struct mt_gguf_bytes *bytes, const struct info *info,
                     const struct mt_ggml_type *type, struct mt_error *error)
{
    char what[96];
    if (type && info->dims[0] % type->block_elements != 0)
        snprintf(what, sizeof what, "has rows of %llu elements, %s comes in blocks of %u",
                 (unsigned long long)info->dims[0], type->name, type->block_elements);
    else
        snprintf(what, sizeof what, "has 2^63 elements or bytes, or more");
    return fail_info(bytes, info, error, what);
}

/* The bytes of a tensor, 0 where its type is not known. */
static int size_info(const struct mt_gguf_bytes *bytes, const struct info *info, uint64_t *size,
                     struct mt_error *error)
{
    const struct mt_ggml_type *type = mt_ggml_type_by_number(info->type);
    uint64_t elements = 1;
    *size = 0;
    for (uint32_t i = 0; i < info->n_dims; i++) {
        if (info->dims[i] == 0)
            return fail_info(bytes, info, error, "has a dimension of 0");
        if (__builtin_mul_overflow(elements, info->dims[i], &elements) || elements > INT64_MAX)
            return fail_size(bytes, info, NULL, error);
    }
    if (!type)
        return 0;
    int code = mt_ggml_tensor_size(type, info->dims, sizeof info->dims / sizeof *info->dims,
                                   &elements, size);
    return code || *size > INT64_MAX ? fail_size(bytes, info, type, error) : 0;
}

/* Room for one more record and its kept bytes, with `n` tensors still to come. */
static int make_room(struct mt_gguf *gguf, uint64_t n)
{
    uint64_t rest = gguf->expected > gguf->n ? gguf->expected - gguf->n : 0;
    size_t more = rest > n ? (size_t)rest : (size_t)n;
    more = more < ROOM_AHEAD ? more : ROOM_AHEAD;
    if (gguf->n == gguf->capacity) {
        size_t capacity = gguf->capacity + (more > gguf->capacity ? more : gguf->capacity);
        struct mt_gguf_record *records = realloc(gguf->records, capacity * sizeof *records);
        if (!records)
            return MT_ENOMEM;
        gguf->records = records;
        gguf->capacity = capacity;
    }
    if (gguf->kept_capacity - gguf->kept_length < KEPT_MOST) {
        size_t usual = more * KEPT_USUAL + KEPT_MOST;
        size_t capacity =
            gguf->kept_capacity + (usual > gguf->kept_capacity ? usual : gguf->kept_capacity);
        uint8_t *kept = capacity < UINT32_MAX ? realloc(gguf->kept, capacity) : NULL;
        if (!kept)
            return MT_ENOMEM;
        gguf->kept = kept;
        gguf->kept_capacity = capacity;
    }
    return 0;
}

static void keep(struct mt_gguf *gguf, const void *bytes, size_t length)
{
    memcpy(gguf->kept + gguf->kept_length, bytes, length);
    gguf->kept_length += length;
}

static void add(struct mt_gguf *gguf, const struct info *info, uint64_t size)
{
    struct mt_model_tensor tensor;
    mt_tensor_role_of_gguf(info->name, info->name_length, &tensor);
    const struct mt_gguf_part *part = &gguf->parts[gguf->n_parts - 1];
    gguf->records[gguf->n++] = (struct mt_gguf_record){
        .offset = info->offset,
        .bytes = size,
        .kept_at = (uint32_t)gguf->kept_length,
        .info_at = (uint32_t)(info->at - part->infos_at),
        .layer = tensor.layer < MT_GGUF_NO_LAYER ? (uint16_t)tensor.layer : MT_GGUF_NO_LAYER,
        .part = (uint16_t)(gguf->n_parts - 1),
        .name_length = (uint16_t)info->name_length,
        .n_dims = (uint8_t)info->n_dims,
        .role = (uint8_t)tensor.role};
    keep(gguf, &info->type, sizeof info->type);
    keep(gguf, info->dims, info->n_dims * sizeof *info->dims);
    keep(gguf, info->name, info->name_length);
    if (!mt_ggml_type_by_number(info->type)) {
        char word[TYPE_WORD_MAX];
        int length = snprintf(word, sizeof word, "unknown type %lu", (unsigned long)info->type);
        keep(gguf, word, (size_t)length + 1);
    }
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
    gguf->parts[gguf->n_parts - 1].infos_at = bytes->at;
    for (uint64_t i = 0; i < n && !code; i++) {
        struct info info = {0};
        uint64_t size;
        code = read_info(bytes, &info, error);
        if (!code)
            code = size_info(bytes, &info, &size, error);
        if (!code && make_room(gguf, n - i) != 0)
            code = mt_fail(error, MT_ENOMEM, info.at, "%s: out of memory for its tensors",
                           bytes->path);
        if (!code)
            add(gguf, &info, size);
    }
    return code;
}
