/* SPDX-License-Identifier: MIT */
/* The tensors that a model of a shape consists of, in file order. */
#ifndef MT_MODEL_TENSORS_H
#define MT_MODEL_TENSORS_H

#include "model/architecture.h"
#include "model/ggml_type.h"

#define MT_TENSOR_NAME_BYTES 64
#define MT_TENSOR_ALIGNMENT  32

/* What a random model holds in a tensor. */
enum mt_tensor_fill {
    MT_FILL_RANDOM,       /* spread about 0 with deviation 1 / sqrt(row length) */
    MT_FILL_ONES,         /* norms */
    MT_FILL_ZEROS,        /* biases */
    MT_FILL_ROPE_FACTORS, /* Llama 3.1's stretch of each frequency */
};

/* dims[0] is the row. offset is from the start of the tensor data and a multiple of
 * MT_TENSOR_ALIGNMENT; offset + bytes, rounded up to it, is the next tensor's offset. */
struct mt_tensor {
    char name[MT_TENSOR_NAME_BYTES];
    uint64_t layer; /* counted from 1; 0: it belongs to none. Only the converter sets it */
    uint32_t n_dims;
    uint64_t dims[3];
    const struct mt_ggml_type *type;
    enum mt_tensor_fill fill;
    uint64_t elements;
    uint64_t bytes;
    uint64_t offset;
};

struct mt_tensor_list {
    struct mt_tensor *items;
    size_t n;
    size_t capacity;
    uint64_t elements;   /* of all tensors */
    uint64_t bytes;      /* of all tensors, without padding */
    uint64_t data_bytes; /* with the padding after each; at most INT64_MAX */
};

/* Fills *list with the tensors of a shape that mt_model_shape_complete() has passed, matrices as
 * `type` where their rows allow. On success the caller frees it with mt_tensor_list_finish().
 * Errors: MT_ELIMIT, MT_ENOMEM. */
int mt_model_tensors(const struct mt_model_shape *full, const struct mt_architecture *architecture,
                     const struct mt_ggml_type *type, struct mt_tensor_list *list,
                     struct mt_error *error);

/* Adds a tensor whose name, dimensions and type are set, at the end of the data. Errors: MT_EARG (a
 * dimension is 0, or its row is no whole number of blocks), MT_ELIMIT, MT_ENOMEM. */
int mt_tensor_list_add(struct mt_tensor_list *list, struct mt_tensor *tensor);

void mt_tensor_list_finish(struct mt_tensor_list *list);

#endif
