/* SPDX-License-Identifier: MIT */
/* GGUF files, from memory. The first byte says whether the rest is one file (even) or the two parts
 * of a split one (odd; the next two bytes are the length of the first), the second how large a hole
 * follows each file: 2^n bytes. */
#include "tests/support/memory_files.h"

#include <stdlib.h>

#define HOLE_READ (32 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

/* What holds for every model that opens. */
static void check(const struct mt_model *model, const struct memory_file *files)
{
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_model_tensor tensor;
    uint64_t weight_bytes = 0, layer_bytes = 0;
    for (uint64_t i = 0; i < d->n_tensors; i++) {
        if (mt_model_tensor_at(model, i, &tensor) != 0 || tensor.name_length == 0)
            abort();
        if (tensor.offset + tensor.bytes > files[tensor.file].size_bytes && tensor.bytes != 0)
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    if (length < 4)
        return 0;
    size_t first = length - 4;
    if (data[0] & 1) {
        first = data[2] | (size_t)data[3] << 8;
        first = first < length - 4 ? first : length - 4;
    }
    uint64_t hole = data[1] ? UINT64_C(1) << (data[1] % 48) : 0;
    const struct memory_file files[] = {
        {"m-00001-of-00002.gguf", data + 4, first, first + hole},
        {"m-00002-of-00002.gguf", data + 4 + first, length - 4 - first, length - 4 - first + hole},
        {0}};
    /* Walking through a hole costs time and finds nothing. */
    struct memory_files memory = {
        .files = files, .step_bytes = 1, .most_read_bytes = 2 * length + HOLE_READ};
    struct mt_model_files table;
    struct mt_model *model;
    struct mt_error error;
    memory_files_table(&memory, &table);
    if (mt_model_open("m-00001-of-00002.gguf", &table, &model, &error) == 0) {
        check(model, files);
        mt_model_close(model);
    }
    if (memory.open_sources != 0)
        abort();
    return 0;
}
