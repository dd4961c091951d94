/* SPDX-License-Identifier: MIT */
/* The tensors of safetensors files, and of config.json files whose shapes give them: one compact
 * record each. */
#ifndef MT_MODEL_ST_LIST_H
#define MT_MODEL_ST_LIST_H

#include "model/model.h"

/* X(NAME, "NAME in files", "name", bits of an element) */
#define MT_ST_TYPE_LIST(X)                                                                         \
    X(F64, "F64", "f64", 64)                                                                       \
    X(F32, "F32", "f32", 32)                                                                       \
    X(F16, "F16", "f16", 16)                                                                       \
    X(BF16, "BF16", "bf16", 16)                                                                    \
    X(I64, "I64", "i64", 64)                                                                       \
    X(I32, "I32", "i32", 32)                                                                       \
    X(I16, "I16", "i16", 16)                                                                       \
    X(I8, "I8", "i8", 8)                                                                           \
    X(U64, "U64", "u64", 64)                                                                       \
    X(U32, "U32", "u32", 32)                                                                       \
    X(U16, "U16", "u16", 16)                                                                       \
    X(U8, "U8", "u8", 8)                                                                           \
    X(BOOL, "BOOL", "bool", 8)                                                                     \
    X(C64, "C64", "c64", 64)                                                                       \
    X(F8_E4M3, "F8_E4M3", "f8_e4m3", 8)                                                            \
    X(F8_E5M2, "F8_E5M2", "f8_e5m2", 8)                                                            \
    X(F8_E8M0, "F8_E8M0", "f8_e8m0", 8)                                                            \
    X(F8_E4M3FNUZ, "F8_E4M3FNUZ", "f8_e4m3fnuz", 8)                                                \
    X(F8_E5M2FNUZ, "F8_E5M2FNUZ", "f8_e5m2fnuz", 8)                                                \
    X(F6_E2M3, "F6_E2M3", "f6_e2m3", 6)                                                            \
    X(F6_E3M2, "F6_E3M2", "f6_e3m2", 6)                                                            \
    X(F4, "F4", "f4", 4)

enum mt_st_type {
#define X(NAME, in_file, name, bits) MT_ST_##NAME,
    MT_ST_TYPE_LIST(X)
#undef X
        MT_ST_TYPES
};

/* The type that a file calls `name`, or MT_ST_TYPES. */
enum mt_st_type mt_st_type_find(const char *name, size_t length);
/* Its name in lower case. Borrowed, static. */
const char *mt_st_type_name(enum mt_st_type type);
/* Bytes of `elements` elements, rounded up. Returns 0 or MT_ELIMIT. */
int mt_st_type_bytes(enum mt_st_type type, uint64_t elements, uint64_t *bytes);

/* `dims` as the file has them, the row last. A type from MT_ST_TYPES on is entry `type` -
 * MT_ST_TYPES of the unknown ones. */
struct mt_st_tensor {
    const char *name;
    const uint64_t *dims;
    uint64_t offset;
    uint64_t bytes;
    uint32_t file;
    uint32_t layer; /* this and the role are found when it is added */
    uint16_t name_length;
    uint8_t type;
    uint8_t n_dims;
    uint8_t role;
};

#define MT_ST_UNKNOWN_TYPES 32

/* Start from {0}. */
struct mt_st_list {
    struct mt_st_tensor *tensors;
    size_t n;
    size_t capacity;
    char **texts; /* what names refer to, beside the arena; freed with the list */
    size_t n_texts;
    struct mt_arena arena;
    const char *unknown[MT_ST_UNKNOWN_TYPES];
    size_t n_unknown;
};

/* Adds a record. Returns 0 or MT_ENOMEM. */
int mt_st_list_add(struct mt_st_list *list, const struct mt_st_tensor *tensor);

/* Takes over a text that malloc() gave. Returns 0, or MT_ENOMEM with the text freed. */
int mt_st_list_keep(struct mt_st_list *list, char *text);

/* Makes the list the model's, which frees it when it is closed. */
void mt_st_list_give(struct mt_st_list *list, struct mt_model *model);

void mt_st_list_free(struct mt_st_list *list);

/* The number of elements. Returns 0 or MT_ELIMIT. */
int mt_st_elements(const uint64_t *dims, size_t n_dims, uint64_t *elements);

#endif
