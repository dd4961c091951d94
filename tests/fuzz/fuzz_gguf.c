/* SPDX-License-Identifier: MIT */
/* GGUF files, from memory. The first byte says whether the rest is one file (even) or the two parts
 * of a split one (odd; the next two bytes are the length of the first), the second how large a hole
 * follows each file: 2^n bytes. */
#include "model_check.h"

#include <memtally/error.h>

#define HOLE_READ (32 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

/* Tensors of a GGUF file lie inside it and have names. */
static void check_places(const struct mt_model *model, const struct memory_file *files)
{
    struct mt_model_tensor tensor;
    for (uint64_t i = 0; i < mt_model_describe(model)->n_tensors; i++) {
        if (mt_model_tensor_at(model, i, &tensor) != 0 || tensor.name_length == 0)
            abort();
        if (tensor.offset + tensor.bytes > files[tensor.file].size_bytes && tensor.bytes != 0)
            abort();
    }
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
        check_model(model);
        check_places(model, files);
        mt_model_close(model);
    }
    if (memory.open_sources != 0)
        abort();
    return 0;
}
