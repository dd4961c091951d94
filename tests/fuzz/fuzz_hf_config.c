/* SPDX-License-Identifier: MIT */
/* A config.json, alone and beside safetensors; and the same bytes as a manifest in Ollama's store,
 * beside the blob that is called by zeros only, and as a Modelfile. */
#include "tests/fuzz/model_check.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static const uint8_t weights[] =
    "\x60\0\0\0\0\0\0\0{\"model.layers.1.mlp.experts.0.up_proj.weight\":{\"dtype\":\"F16\","
    "\"shape\":[2,3],\"data_offsets\":[0,12]}}............";

#define BLOB "/s/blobs/sha256-0000000000000000000000000000000000000000000000000000000000000000"

/* A GGUF file of version 3 with no tensors and no pairs. */
static const uint8_t blob[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

static void check_modelfile(const char *text, size_t length)
{
    char from[64];
    char path[128];
    if (mt_ollama_modelfile_from(text, length, from, sizeof from) != 0)
        return;
    if (strlen(from) >= sizeof from)
        abort();
    if (mt_ollama_manifest_path("/s", from, path, sizeof path) == 0 &&
        (strncmp(path, "/s/manifests/", 13) != 0 || strstr(path, "/../")))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    const struct memory_file files[] = {
        {"config.json", data, length, length},
        {"model.safetensors", weights, sizeof weights - 1, sizeof weights - 1},
        {0}};
    const struct memory_file alone[] = {{"config.json", data, length, length}, {0}};
    const struct memory_file store[] = {{"/s/manifests/h/n/m/t", data, length, length},
                                        {BLOB, blob, sizeof blob, sizeof blob},
                                        {0}};
    check_files(files, "config.json");
    check_files(alone, "config.json");
    check_files(store, "/s/manifests/h/n/m/t");
    check_modelfile((const char *)data, length);
    return 0;
}
