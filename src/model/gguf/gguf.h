/* SPDX-License-Identifier: MIT */
/* The header of GGUF files, read.
 *
 *   file   = header, padding to the alignment, tensor data
 *   header = "GGUF" u32:version u64:n_tensors u64:n_pairs pair* tensor*
 *   pair   = string:key u32:type value
 *   array  = u32:type u64:n value*
 *   tensor = string:name u32:n_dims u64:dim* u32:type u64:offset
 *   string = u64:length byte*
 *
 * Numbers are little-endian, or all of them big-endian. We keep only the small values of the pairs:
 * a vocabulary is most of a header, and nobody here needs it. Tensors stay as they stand in the
 * file, with a short record for each. Knows the grammar, not what models are. */
#ifndef MT_MODEL_GGUF_H
#define MT_MODEL_GGUF_H

#include "model/model.h"
#include "model/names.h"

#include <endian.h>
#include <string.h>

#define MT_GGUF_ITEMS_MAX  4096 /* the longest array whose items are kept */
#define MT_GGUF_STRING_MAX 1024 /* the longest string that is kept */

enum mt_gguf_value_type {
    MT_GGUF_VALUE_U8,
    MT_GGUF_VALUE_I8,
    MT_GGUF_VALUE_U16,
    MT_GGUF_VALUE_I16,
    MT_GGUF_VALUE_U32,
    MT_GGUF_VALUE_I32,
    MT_GGUF_VALUE_F32,
    MT_GGUF_VALUE_BOOL,
    MT_GGUF_VALUE_STRING,
    MT_GGUF_VALUE_ARRAY,
    MT_GGUF_VALUE_U64,
    MT_GGUF_VALUE_I64,
    MT_GGUF_VALUE_F64,
    MT_GGUF_VALUE_TYPES
};

/* A stretch of a file, moving forward over it. Bytes before `at` are forgotten as it goes. */
struct mt_gguf_bytes {
    const struct mt_model_source *source;
    const char *path;
    int big_endian;
    uint64_t at;    /* offset in the file of the next byte */
    uint64_t start; /* and of data[0] */
    uint8_t *data;
    size_t length;
    size_t capacity;
    uint64_t walked; /* bytes read so far */
};

/* Reads on until there are `n` bytes at `at`; for mt_gguf_need(). */
int mt_gguf_fetch(struct mt_gguf_bytes *bytes, uint64_t n, const char *what,
                  struct mt_error *error);

/* Makes `n` bytes at `at` readable; they are at mt_gguf_here() until the next call. `what` is what
 * they are, for the error. Errors: MT_ETRUNCATED, MT_ELIMIT, MT_ENOMEM, those of the source. */
static inline int mt_gguf_need(struct mt_gguf_bytes *bytes, uint64_t n, const char *what,
                               struct mt_error *error)
{
    uint64_t passed = bytes->at - bytes->start;
    if (passed <= bytes->length && n <= bytes->length - passed)
        return 0;
    return mt_gguf_fetch(bytes, n, what, error);
}

static inline const uint8_t *mt_gguf_here(const struct mt_gguf_bytes *bytes)
{
    return bytes->data + (bytes->at - bytes->start);
}

/* Reads a number of `width` bytes, which are at `at`. */
static inline uint64_t mt_gguf_number_at(const uint8_t *at, size_t width, int big_endian)
{
    uint64_t value = 0;
    if (width == 8) {
        memcpy(&value, at, 8);
        return big_endian ? be64toh(value) : le64toh(value);
    }
    if (width == 4) {
        uint32_t half;
        memcpy(&half, at, 4);
        return big_endian ? be32toh(half) : le32toh(half);
    }
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)at[i] << (8 * (big_endian ? width - 1 - i : i));
    return value;
}

int mt_gguf_number(struct mt_gguf_bytes *bytes, size_t width, const char *what, uint64_t *value,
                   struct mt_error *error);
/* Reads the length of a string and checks that the string lies within the file. */
int mt_gguf_length(struct mt_gguf_bytes *bytes, const char *what, uint64_t *length,
                   struct mt_error *error);

/* One pair. Of a signed number `number` is the two's complement; floating point is not kept. The
 * items of an array of whole numbers or bools are kept where there are few. */
struct mt_gguf_pair {
    const char *key;
    uint64_t at; /* of the key, in the file */
    uint32_t key_length;
    uint8_t type;
    uint8_t item_type;
    uint64_t n_items;
    uint64_t number;
    const char *text;     /* a string that is kept, terminated; else NULL */
    const int64_t *items; /* of an array, or NULL */
};

struct mt_gguf_pairs {
    const char *path;
    struct mt_gguf_pair *items;
    size_t n;
    size_t capacity;
    struct mt_names keys;
};

/* Reads `n` pairs; keys and values go to the arena. Finish *pairs also after a failure. */
int mt_gguf_read_pairs(struct mt_gguf_pairs *pairs, struct mt_arena *arena,
                       struct mt_gguf_bytes *bytes, uint64_t n, struct mt_error *error);
void mt_gguf_pairs_finish(struct mt_gguf_pairs *pairs);
/* The pair of that key, or NULL. */
const struct mt_gguf_pair *mt_gguf_find(const struct mt_gguf_pairs *pairs, const char *key);
/* Takes a number that is not negative from `key`. Returns 1, 0 where there is no such pair (*value
 * is left alone), MT_EFORMAT where it is something else. */
int mt_gguf_get(const struct mt_gguf_pairs *pairs, const char *key, uint64_t *value,
                struct mt_error *error);

/* One file of a model. */
struct mt_gguf_part {
    const char *path;
    uint64_t infos_at;  /* where the descriptions of tensors begin */
    uint64_t infos_end; /* and end */
    uint64_t data_at;   /* and where the tensors themselves begin */
    uint64_t size_bytes;
    uint64_t alignment;
};

/* One tensor. Its type, dimensions and name are in the model's `kept` bytes, so that a record is
 * short; there may be a hundred thousand. */
struct mt_gguf_record {
    uint64_t offset; /* in the file; until the part is placed, in its data */
    uint64_t bytes;  /* 0 of an unknown type until it is placed */
    uint32_t kept_at;
    uint32_t info_at; /* its description, from infos_at of the part */
    uint16_t layer;   /* MT_GGUF_NO_LAYER where it belongs to none */
    uint16_t part;
    uint16_t name_length;
    uint8_t n_dims;
    uint8_t role;
};

#define MT_GGUF_NO_LAYER UINT16_MAX

struct mt_gguf {
    struct mt_gguf_part *parts;
    size_t n_parts;
    struct mt_gguf_record *records;
    size_t n;
    size_t capacity;
    uint8_t *kept;
    size_t kept_length;
    size_t kept_capacity;
    uint64_t expected;          /* tensors of all parts, as the first one says; 0: it does not */
    struct mt_gguf_pairs pairs; /* of the first part */
};

/* The kept bytes of a tensor: u32:type u64:dim* name, in this machine's order; where the type is
 * not known, a word for it follows, terminated. */
uint32_t mt_gguf_type_of(const struct mt_gguf *gguf, const struct mt_gguf_record *record);
uint64_t mt_gguf_dim_of(const struct mt_gguf *gguf, const struct mt_gguf_record *record,
                        uint32_t index);
const char *mt_gguf_name_of(const struct mt_gguf *gguf, const struct mt_gguf_record *record);

/* Reads the descriptions of `n` tensors, which belong to the last part, and adds a record for
 * each. */
int mt_gguf_read_tensors(struct mt_gguf *gguf, struct mt_gguf_bytes *bytes, uint64_t n,
                         struct mt_error *error);
/* Finds the places of the tensors from number `first` on, all of the last part. */
int mt_gguf_place_tensors(struct mt_gguf *gguf, size_t first, struct mt_error *error);
/* Refuses a name that two tensors of the model have. */
int mt_gguf_check_names(const struct mt_gguf *gguf, struct mt_error *error);
/* "PATH: the tensor 'NAME' at byte N " and the end of a sentence. Returns `code`. */
int mt_gguf_fail_tensor(const struct mt_gguf *gguf, const struct mt_gguf_record *record, int code,
                        struct mt_error *error, const char *what);
int mt_gguf_tensor_at(const struct mt_model *model, uint64_t index, struct mt_model_tensor *tensor);

/* Makes the description of what was read. */
int mt_gguf_describe(struct mt_model *model, const struct mt_gguf *gguf, struct mt_error *error);

#endif
