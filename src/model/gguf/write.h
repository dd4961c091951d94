/* SPDX-License-Identifier: MIT */
/* Builds the header of a GGUF file (version 3, little-endian) in memory.
 *
 *   file   = header, padding to MT_TENSOR_ALIGNMENT, tensor data
 *   header = "GGUF" u32:3 u64:n_tensors u64:n_pairs pair* tensor*
 *   pair   = string:key u32:type value         type: 4 u32, 5 i32, 6 f32, 7 bool, 8 string, 9 array
 *   array  = u32:type u64:n value*
 *   tensor = string:name u32:n_dims u64:dim* u32:type u64:offset
 *   string = u64:length byte*
 *
 * A failed allocation is remembered, as in base/strbuf.h. */
#ifndef MT_MODEL_GGUF_WRITE_H
#define MT_MODEL_GGUF_WRITE_H

#include "base/strbuf.h"
#include "model/tensors.h"

enum mt_gguf_type {
    MT_GGUF_U32 = 4,
    MT_GGUF_I32 = 5,
    MT_GGUF_F32 = 6,
    MT_GGUF_BOOL = 7,
    MT_GGUF_STRING = 8,
    MT_GGUF_ARRAY = 9
};

struct mt_gguf_header {
    struct mt_strbuf bytes;
    uint64_t n_pairs;
    uint64_t n_tensors;
};

void mt_gguf_init(struct mt_gguf_header *header);
void mt_gguf_finish(struct mt_gguf_header *header);

/* Pairs come before tensors. */
void mt_gguf_u32(struct mt_gguf_header *header, const char *key, uint64_t value);
void mt_gguf_f32(struct mt_gguf_header *header, const char *key, double value);
void mt_gguf_bool(struct mt_gguf_header *header, const char *key, int value);
void mt_gguf_string(struct mt_gguf_header *header, const char *key, const char *value);

/* Starts an array of `n` values; exactly `n` calls of the function below for its type follow. */
void mt_gguf_array(struct mt_gguf_header *header, const char *key, enum mt_gguf_type type,
                   uint64_t n);
void mt_gguf_string_value(struct mt_gguf_header *header, const char *value);
void mt_gguf_i32_value(struct mt_gguf_header *header, int32_t value);
void mt_gguf_bool_value(struct mt_gguf_header *header, int value);
void mt_gguf_f32_value(struct mt_gguf_header *header, float value);

void mt_gguf_tensor(struct mt_gguf_header *header, const struct mt_tensor *tensor);

/* Pads the header and writes the counts into it. Returns 0 or MT_ENOMEM. */
int mt_gguf_seal(struct mt_gguf_header *header);

#endif
