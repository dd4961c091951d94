/* SPDX-License-Identifier: MIT */
/* Filling devices with layers in their order. What is loaded of a layer is its tensors' bytes, in
 * the type that floats get. */
#include "place.h"

#include <stdlib.h>

#include "base/out_of_memory.h"
#include "predict/sheet.h"

/* Bytes of all loaded tensors, and of the layers' own as the file has them. */
static double growth_of(const struct mt_predict_input *in, const struct mt_torch_weights *all)
{
    uint64_t file = 0;
    for (uint64_t i = 0; i < in->d->n_tensors; i++) {
        struct mt_model_tensor tensor;
        if (mt_model_tensor_at(in->model, i, &tensor) == 0)
            file = mt_add(file, tensor.bytes);
    }
    return file ? (double)all->bytes / (double)file : 1;
}

/* The embedding, as loaded. */
static uint64_t input_of(const struct mt_predict_input *in, double growth)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < in->d->n_tensors; i++) {
        struct mt_model_tensor tensor;
        if (mt_model_tensor_at(in->model, i, &tensor) == 0 &&
            (tensor.role == MT_TENSOR_TOKEN_EMBEDDING ||
             tensor.role == MT_TENSOR_PER_LAYER_EMBEDDING || tensor.role == MT_TENSOR_INPUT))
            bytes = mt_add(bytes, mt_scale(tensor.bytes, growth));
    }
    return bytes;
}

int mt_torch_place_init(struct mt_torch_place *place, const struct mt_predict_input *in,
                        int float_bytes, struct mt_error *error)
{
    const struct mt_torch_load load = {
        .tensor_parallel = 1, .vocabulary_padding = 1, .float_bytes = float_bytes};
    struct mt_torch_stage stage;
    struct mt_torch_weights all;
    mt_torch_stage_of(in, 0, 1, &stage);
    mt_torch_weights_of(in, &load, &stage, &all);
    *place = (struct mt_torch_place){.n_layers = mt_torch_layers(in)};
    place->device_of = calloc(place->n_layers + 1, sizeof *place->device_of);
    place->layer_bytes = calloc(place->n_layers + 1, sizeof *place->layer_bytes);
    if (!place->device_of || !place->layer_bytes) {
        mt_torch_place_finish(place);
        return mt_out_of_memory(error);
    }
    double growth = growth_of(in, &all);
    place->input_bytes = input_of(in, growth);
    uint64_t rest = all.bytes - (place->input_bytes < all.bytes ? place->input_bytes : all.bytes);
    for (uint64_t i = 0; i < place->n_layers && i < in->d->n_layers; i++) {
        uint64_t bytes = mt_scale(in->d->layers[i].weight_bytes, growth);
        place->layer_bytes[i] = bytes < rest ? bytes : rest;
        rest -= place->layer_bytes[i];
    }
    place->layer_bytes[place->n_layers] = rest;
    return 0;
}

void mt_torch_place_fill(struct mt_torch_place *place, const uint64_t *more, const uint64_t *limits,
                         size_t n_devices)
{
    size_t device = 0;
    uint64_t used = place->input == MT_HOST_PLACE ? 0 : place->input_bytes;
    place->host_layers = 0;
    for (uint64_t i = 0; i <= place->n_layers; i++) {
        uint64_t bytes = mt_add(place->layer_bytes[i], more ? more[i] : 0);
        while (device < n_devices && mt_add(used, bytes) > limits[device]) {
            used = 0;
            device++;
        }
        place->device_of[i] = device < n_devices ? (int)device : MT_HOST_PLACE;
        place->host_layers += device >= n_devices;
        used = mt_add(used, bytes);
    }
}

void mt_torch_place_finish(struct mt_torch_place *place)
{
    free(place->device_of);
    free(place->layer_bytes);
    *place = (struct mt_torch_place){0};
}
