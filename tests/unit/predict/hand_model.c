/* SPDX-License-Identifier: MIT */
#include "hand_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <memtally/error.h>

#include "model/ggml_type.h"

static int tensor_at(const struct mt_model *model, uint64_t index, struct mt_model_tensor *tensor)
{
    *tensor = ((const struct hand_model *)model)->tensors[index];
    return 0;
}

void hand_model_init(struct hand_model *hand, const char *architecture, uint64_t n_layers,
                     uint64_t heads, uint64_t kv_heads, uint64_t head_size)
{
    memset(hand, 0, sizeof *hand);
    assert_true(n_layers <= HAND_LAYERS);
    for (uint64_t i = 0; i < n_layers; i++)
        hand->layers[i] = (struct mt_model_layer){.attention = MT_ATTENTION_GLOBAL,
                                                  .heads = heads,
                                                  .kv_heads = kv_heads,
                                                  .key_size = head_size,
                                                  .value_size = head_size,
                                                  .cache_layer = i};
    hand->model.tensor_at = tensor_at;
    hand->model.description = (struct mt_model_description){.format = MT_MODEL_GGUF,
                                                            .path = "hand.gguf",
                                                            .architecture = architecture,
                                                            .family_known = 1,
                                                            .n_files = 1,
                                                            .n_layers = n_layers,
                                                            .layers = hand->layers,
                                                            .embedding_length = heads * head_size,
                                                            .vocabulary = 1000,
                                                            .context_length = 131072,
                                                            .heads = heads,
                                                            .position_streams = 1};
}

void hand_model_tensor(struct hand_model *hand, const char *name, const char *type, uint64_t row,
                       uint64_t rows, uint64_t experts, uint32_t layer, enum mt_tensor_role role)
{
    const struct mt_ggml_type *found = mt_ggml_type_by_name(type);
    struct mt_model_description *d = &hand->model.description;
    assert_true(d->n_tensors < HAND_TENSORS && found != NULL);
    struct mt_model_tensor *tensor = &hand->tensors[d->n_tensors++];
    *tensor = (struct mt_model_tensor){.name = name,
                                       .name_length = strlen(name),
                                       .type = type,
                                       .type_known = 1,
                                       .n_dims = experts ? 3
                                                 : rows  ? 2
                                                         : 1,
                                       .dims = {row, rows, experts},
                                       .offset = hand->end,
                                       .layer = layer,
                                       .role = role};
    assert_int_equal(
        mt_ggml_tensor_size(found, tensor->dims, tensor->n_dims, &tensor->elements, &tensor->bytes),
        0);
    hand->end += (tensor->bytes + 31) / 32 * 32;
}

struct mt_estimate *hand_model_estimate(const struct hand_model *hand,
                                        const struct mt_predict_settings *settings)
{
    struct mt_estimate *estimate = NULL;
    struct mt_error error = {0};
    if (mt_estimate_create(&hand->model, settings, &estimate, &error) < 0)
        fail_msg("%s", error.text);
    return estimate;
}

const char *hand_model_refusal(const struct hand_model *hand,
                               const struct mt_predict_settings *settings, int code)
{
    static struct mt_error error;
    struct mt_estimate *estimate = NULL;
    assert_int_equal(mt_estimate_create(&hand->model, settings, &estimate, &error), code);
    assert_null(estimate);
    return error.text;
}

uint64_t hand_model_bytes(const struct mt_estimate *estimate, const char *place,
                          enum mt_category category, const char *name)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < estimate->n_terms; i++) {
        const struct mt_estimate_term *term = &estimate->terms[i];
        if (!strcmp(term->place, place) && term->category == category &&
            (!name || !strcmp(term->name, name)))
            sum += term->bytes;
    }
    return sum;
}
