/* SPDX-License-Identifier: MIT */
/* Models made by hand: a description and tensors without a file, for tests of the predictors. */
#ifndef TEST_PREDICT_HAND_MODEL_H
#define TEST_PREDICT_HAND_MODEL_H

#include <memtally/predict.h>

#include "model/model.h"

#define HAND_LAYERS  128
#define HAND_TENSORS 64

struct hand_model {
    struct mt_model model; /* first, so that tensors can be found from it */
    struct mt_model_layer layers[HAND_LAYERS];
    struct mt_model_tensor tensors[HAND_TENSORS];
    uint64_t end; /* of the tensors in the file */
};

/* A model of equal layers of plain attention that was trained for 131072 tokens, with no tensors.
 */
void hand_model_init(struct hand_model *hand, const char *architecture, uint64_t n_layers,
                     uint64_t heads, uint64_t kv_heads, uint64_t head_size);

/* Adds a tensor behind the last one; `layer` may be MT_NO_LAYER. `rows` of 0 makes one dimension,
 * `experts` other than 0 three. */
void hand_model_tensor(struct hand_model *hand, const char *name, const char *type, uint64_t row,
                       uint64_t rows, uint64_t experts, uint32_t layer, enum mt_tensor_role role);

/* Makes an estimate or fails the test. */
struct mt_estimate *hand_model_estimate(const struct hand_model *hand,
                                        const struct mt_predict_settings *settings);

/* The error's text of settings that are refused with `code`. Static until the next call. */
const char *hand_model_refusal(const struct hand_model *hand,
                               const struct mt_predict_settings *settings, int code);

/* The sum of an estimate's terms of one category at one place ("host", "gpu:0"); those of `name`
 * only, where it is not NULL. */
uint64_t hand_model_bytes(const struct mt_estimate *estimate, const char *place,
                          enum mt_category category, const char *name);

#endif
