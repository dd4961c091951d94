/* SPDX-License-Identifier: MIT */
/* Models made by hand for tests of predictors: a decoder of equal layers, which a test then
 * changes. */
#ifndef TESTS_MADE_MODEL_H
#define TESTS_MADE_MODEL_H

#include <memtally/predict.h>

#include "model/model.h"

#define MADE_LAYERS_MAX  128
#define MADE_TENSORS_MAX 1700
#define MADE_GIB         (UINT64_C(1) << 30)
#define MADE_MIB         (UINT64_C(1) << 20)

struct made_model {
    struct mt_model model; /* first: the predictors' pointer */
    struct mt_model_layer layers[MADE_LAYERS_MAX];
    struct mt_model_tensor tensors[MADE_TENSORS_MAX];
    char names[MADE_TENSORS_MAX][64];
};

struct made_shape {
    uint64_t layers;
    uint64_t embedding;
    uint64_t inner;
    uint64_t heads;
    uint64_t kv_heads;
    uint64_t head_size;
    uint64_t vocabulary;
    uint64_t context;
    int head_norms; /* norms of queries and keys, as Qwen 3 has */
    int biases;     /* of q, k and v, as Qwen 2.5 has */
    int tied;
};

/* Fills *made with the tensors of a Llama of that shape, in bf16. */
void make_model(struct made_model *made, const struct made_shape *shape);
/* Adds a tensor in bf16; `second` 0: a vector. */
void add_tensor(struct made_model *made, const char *name, uint64_t first, uint64_t second,
                uint32_t layer, enum mt_tensor_role role);

/* Five layers, of which two stages get three and two. The last layer has 3 GiB of weights more, so
 * that the second stage has less room in bytes, and more in tokens. */
void make_unequal_stages(struct made_model *made);
/* Settings with two stages on two devices of 24 GiB. */
struct mt_predict_settings two_stages(const char *engine);
/* The sum of an estimate's bytes of a category on a device; of what it holds in all for 0. */
uint64_t made_bytes(const struct mt_estimate *estimate, size_t device, enum mt_category category);

/* An estimate of the model; the test fails where there is none. */
struct mt_estimate *made_estimate(const struct made_model *made,
                                  struct mt_predict_settings settings);
/* The bytes of a category at a place, 0 where it has none. */
uint64_t made_row(const struct mt_estimate *estimate, size_t place, enum mt_category category);

extern const struct made_shape llama_3_1_8b;
extern const struct made_shape llama_3_8b;
extern const struct made_shape qwen3_32b;
extern const struct made_shape qwen2_5_32b;

#endif
