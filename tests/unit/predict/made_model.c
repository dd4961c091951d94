/* SPDX-License-Identifier: MIT */
/* Shapes are those of the published config.json of each model. */
#include "made_model.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"

const struct made_shape llama_3_1_8b = {32, 4096, 14336, 32, 8, 128, 128256, 131072, 0, 0, 0};
const struct made_shape llama_3_8b = {32, 4096, 14336, 32, 8, 128, 128256, 8192, 0, 0, 0};
const struct made_shape qwen3_32b = {64, 5120, 25600, 64, 8, 128, 151936, 40960, 1, 0, 0};
const struct made_shape qwen2_5_32b = {64, 5120, 27648, 40, 8, 128, 152064, 32768, 0, 1, 0};

static int tensor_at(const struct mt_model *model, uint64_t index, struct mt_model_tensor *tensor)
{
    const struct made_model *made = (const struct made_model *)model;
    if (index >= model->description.n_tensors)
        return MT_EARG;
    *tensor = made->tensors[index];
    return 0;
}

void add_tensor(struct made_model *made, const char *name, uint64_t first, uint64_t second,
                uint32_t layer, enum mt_tensor_role role)
{
    struct mt_model_description *d = &made->model.description;
    size_t at = d->n_tensors++;
    if (layer == MT_NO_LAYER)
        snprintf(made->names[at], sizeof made->names[at], "%s", name);
    else
        snprintf(made->names[at], sizeof made->names[at], "model.layers.%u.%s", layer, name);
    struct mt_model_tensor *tensor = &made->tensors[at];
    *tensor = (struct mt_model_tensor){.name = made->names[at],
                                       .name_length = strlen(made->names[at]),
                                       .type = "bf16",
                                       .type_known = 1,
                                       .n_dims = second ? 2 : 1,
                                       .dims = {first, second},
                                       .elements = first * (second ? second : 1),
                                       .layer = layer,
                                       .role = role};
    tensor->bytes = 2 * tensor->elements;
    d->weight_bytes += tensor->bytes;
    d->parameters += tensor->elements;
    if (layer != MT_NO_LAYER)
        made->layers[layer].weight_bytes += tensor->bytes;
}

static void add_layer(struct made_model *made, const struct made_shape *s, uint32_t i)
{
    uint64_t q = s->heads * s->head_size;
    uint64_t kv = s->kv_heads * s->head_size;
    made->layers[i] = (struct mt_model_layer){.attention = MT_ATTENTION_GLOBAL,
                                              .heads = s->heads,
                                              .kv_heads = s->kv_heads,
                                              .key_size = s->head_size,
                                              .value_size = s->head_size,
                                              .cache_layer = i,
                                              .ff_length = s->inner};
    add_tensor(made, "input_layernorm.weight", s->embedding, 0, i, MT_TENSOR_LAYER);
    add_tensor(made, "post_attention_layernorm.weight", s->embedding, 0, i, MT_TENSOR_LAYER);
    add_tensor(made, "self_attn.q_proj.weight", s->embedding, q, i, MT_TENSOR_LAYER);
    add_tensor(made, "self_attn.k_proj.weight", s->embedding, kv, i, MT_TENSOR_LAYER);
    add_tensor(made, "self_attn.v_proj.weight", s->embedding, kv, i, MT_TENSOR_LAYER);
    add_tensor(made, "self_attn.o_proj.weight", q, s->embedding, i, MT_TENSOR_LAYER);
    add_tensor(made, "mlp.gate_proj.weight", s->embedding, s->inner, i, MT_TENSOR_LAYER);
    add_tensor(made, "mlp.up_proj.weight", s->embedding, s->inner, i, MT_TENSOR_LAYER);
    add_tensor(made, "mlp.down_proj.weight", s->inner, s->embedding, i, MT_TENSOR_LAYER);
    if (s->head_norms) {
        add_tensor(made, "self_attn.q_norm.weight", s->head_size, 0, i, MT_TENSOR_LAYER);
        add_tensor(made, "self_attn.k_norm.weight", s->head_size, 0, i, MT_TENSOR_LAYER);
    }
    if (s->biases) {
        add_tensor(made, "self_attn.q_proj.bias", q, 0, i, MT_TENSOR_LAYER);
        add_tensor(made, "self_attn.k_proj.bias", kv, 0, i, MT_TENSOR_LAYER);
        add_tensor(made, "self_attn.v_proj.bias", kv, 0, i, MT_TENSOR_LAYER);
    }
}

void make_model(struct made_model *made, const struct made_shape *s)
{
    memset(made, 0, sizeof *made);
    made->model.tensor_at = tensor_at;
    made->model.description = (struct mt_model_description){.format = MT_MODEL_SAFETENSORS,
                                                            .path = "made",
                                                            .architecture = "llama",
                                                            .family_known = 1,
                                                            .dtype = "bf16",
                                                            .n_layers = s->layers,
                                                            .layers = made->layers,
                                                            .embedding_length = s->embedding,
                                                            .vocabulary = s->vocabulary,
                                                            .context_length = s->context,
                                                            .heads = s->heads,
                                                            .position_streams = 1,
                                                            .tied_output = s->tied};
    add_tensor(made, "model.embed_tokens.weight", s->embedding, s->vocabulary, MT_NO_LAYER,
               MT_TENSOR_TOKEN_EMBEDDING);
    for (uint32_t i = 0; i < s->layers; i++)
        add_layer(made, s, i);
    add_tensor(made, "model.norm.weight", s->embedding, 0, MT_NO_LAYER, MT_TENSOR_OUTPUT_OTHER);
    if (!s->tied)
        add_tensor(made, "lm_head.weight", s->embedding, s->vocabulary, MT_NO_LAYER,
                   MT_TENSOR_OUTPUT);
}

void make_unequal_stages(struct made_model *made)
{
    static const struct made_shape shape = {5, 4096, 14336, 32, 32, 128, 32000, 131072, 0, 0, 0};
    make_model(made, &shape);
    add_tensor(made, "mlp.extra.weight", 4096, 3 * MADE_GIB / 4096 / 2, 4, MT_TENSOR_LAYER);
}

struct mt_predict_settings two_stages(const char *engine)
{
    static const uint64_t devices[] = {24 * MADE_GIB, 24 * MADE_GIB};
    return (struct mt_predict_settings){.engine = engine,
                                        .device_bytes = devices,
                                        .n_devices = 2,
                                        .pipeline_parallel = 2,
                                        .context_tokens = 8192};
}

uint64_t made_bytes(const struct mt_estimate *estimate, size_t device, enum mt_category category)
{
    const struct mt_tally_place *place = &estimate->tally.places[1 + device];
    if (category == MT_CATEGORY_NONE)
        return place->total_allocated_bytes;
    const struct mt_tally_row *row = mt_tally_row_of(place, category);
    return row ? row->allocated_bytes : 0;
}

struct mt_estimate *made_estimate(const struct made_model *made,
                                  struct mt_predict_settings settings)
{
    struct mt_estimate *result = NULL;
    struct mt_error error = {0};
    if (mt_estimate_create(&made->model, &settings, &result, &error) < 0)
        fail_msg("%s", error.text);
    return result;
}

uint64_t made_row(const struct mt_estimate *estimate, size_t place, enum mt_category category)
{
    const struct mt_tally_row *found = mt_tally_row_of(&estimate->tally.places[place], category);
    return found ? found->allocated_bytes : 0;
}
