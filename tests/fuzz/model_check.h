/* SPDX-License-Identifier: MIT */
/* What holds for every model that opens. */
#ifndef MT_TESTS_MODEL_CHECK_H
#define MT_TESTS_MODEL_CHECK_H

#include "tests/support/memory_files.h"

#include <stdlib.h>

/* Ends the program where a description does not fit its tensors. Opens nothing. */
static inline void check_model(const struct mt_model *model)
{
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_model_tensor tensor;
    uint64_t weight_bytes = 0;
    uint64_t layer_bytes = 0;
    for (uint64_t i = 0; i < d->n_tensors; i++) {
        if (mt_model_tensor_at(model, i, &tensor) != 0 || !tensor.type)
            abort();
        weight_bytes += tensor.bytes;
    }
    for (uint64_t i = 0; i < d->n_layers; i++) {
        const struct mt_model_layer *layer = &d->layers[i];
        if (layer->cache_layer >= d->n_layers || layer->expert_bytes > layer->weight_bytes)
            abort();
        layer_bytes += layer->weight_bytes;
    }
    if (weight_bytes != d->weight_bytes || layer_bytes > weight_bytes)
        abort();
    if (mt_model_tensor_at(model, d->n_tensors, &tensor) != MT_EARG)
        abort();
}

/* Opens `path` of files in memory, checks it and closes it. */
static inline void check_files(const struct memory_file *files, const char *path)
{
    struct memory_files memory = {.files = files, .step_bytes = 1};
    struct mt_model_files table;
    struct mt_model *model;
    struct mt_error error = {.text = ""};
    memory_files_table(&memory, &table);
    if (mt_model_open(path, &table, &model, &error) == 0) {
        check_model(model);
        mt_model_close(model);
    } else if (!error.text[0]) {
        abort();
    }
    if (memory.open_sources != 0)
        abort();
}

#endif
