/* SPDX-License-Identifier: MIT */
/* A config.json, alone and beside safetensors; and the same bytes as a manifest and a Modelfile. */
#include "tests/fuzz/model_check.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static const uint8_t weights[] =
    "\x60\0\0\0\0\0\0\0{\"model.layers.1.mlp.experts.0.up_proj.weight\":{\"dtype\":\"F16\","
    "\"shape\":[2,3],\"data_offsets\":[0,12]}}............";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    const struct memory_file files[] = {
        {"config.json", data, length, length},
        {"model.safetensors", weights, sizeof weights - 1, sizeof weights - 1},
        {0}};
    const struct memory_file alone[] = {{"config.json", data, length, length}, {0}};
    char from[64];
    check_files(files, "config.json");
    check_files(alone, "config.json");
    if (mt_ollama_modelfile_from((const char *)data, length, from, sizeof from) == 0 &&
        strlen(from) >= sizeof from)
        abort();
    return 0;
}
