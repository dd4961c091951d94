/* SPDX-License-Identifier: MIT */
/* What holds for every model that opens. */
#include "model.h"

static int layer_is_valid(const struct mt_model_description *d, const struct mt_model_layer *layer)
{
    return layer->cache_layer < d->n_layers && layer->expert_bytes <= layer->weight_bytes &&
           layer->kv_heads <= layer->heads + (layer->heads == 0 ? layer->kv_heads : 0) &&
           (layer->attention != MT_ATTENTION_LATENT || layer->value_size == 0);
}

int mt_description_is_valid(const struct mt_model_description *d)
{
    uint64_t layer_bytes = 0;
    for (uint64_t i = 0; i < d->n_layers; i++) {
        if (!layer_is_valid(d, &d->layers[i]))
            return 0;
        layer_bytes += d->layers[i].weight_bytes;
    }
    return layer_bytes <= d->weight_bytes && d->n_draft_layers <= d->n_layers;
}

int mt_model_is_valid(const struct mt_model *model)
{
    const struct mt_model_description *d = &model->description;
    struct mt_model_tensor tensor;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < d->n_tensors; i++) {
        if (mt_model_tensor_at(model, i, &tensor) != 0 || !tensor.type)
            return 0;
        bytes += tensor.bytes;
    }
    return bytes == d->weight_bytes && mt_description_is_valid(d);
}
