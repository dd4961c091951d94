/* SPDX-License-Identifier: MIT */
/* Mixtures of types for sample models: each tensor as llama.cpp's quantiser would store it, by the
 * rules that the converter has. */
#include <stdio.h>

#include "base/error.h"
#include "model/convert/convert.h"
#include "sample.h"

/* The converter counts layers from 1. */
static void number_layers(struct mt_tensor_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        unsigned long layer;
        if (sscanf(list->items[i].name, "blk.%lu.", &layer) == 1)
            list->items[i].layer = layer + 1;
    }
}

/* The same tensors with the types that they have now, in their new places. */
static int place_anew(struct mt_tensor_list *list)
{
    struct mt_tensor_list placed = {0};
    int code = 0;
    for (size_t i = 0; i < list->n && !code; i++)
        code = mt_tensor_list_add(&placed, &list->items[i]);
    if (code) {
        mt_tensor_list_finish(&placed);
        return code;
    }
    mt_tensor_list_finish(list);
    *list = placed;
    return 0;
}

int mt_sample_mix(const struct mt_model_shape *shape, const struct mt_architecture *architecture,
                  enum mt_file_type type, struct mt_tensor_list *list, struct mt_error *error)
{
    const struct mt_convert_family family = {.arch = architecture->arch};
    struct mt_convert convert = {
        .family = &family, .type = type, .tensors = list->items, .n_tensors = list->n};
    convert.values[MT_V_layers] = shape->layers;
    convert.values[MT_V_experts] = shape->experts;
    convert.values[MT_V_all_heads] = shape->heads;
    convert.values[MT_V_kv] = shape->kv_heads;
    number_layers(list);
    mt_convert_choose_types(&convert);
    int code = place_anew(list);
    return code ? mt_fail(error, code, MT_NO_OFFSET, "the model is larger than a file can be") : 0;
}
