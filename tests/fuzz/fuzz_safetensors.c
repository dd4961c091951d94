/* SPDX-License-Identifier: MIT */
/* Safetensors from memory. The first byte says how large a hole follows the file, 2^n bytes, and
 * whether the bytes are a file (even) or an index of shards (odd). */
#include "tests/fuzz/model_check.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static const uint8_t shard[] = "\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F16\",\"shape\":[2,3],"
                               "\"data_offsets\":[0,12]}}         ............";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    if (length < 1)
        return 0;
    uint64_t hole = data[0] > 1 ? UINT64_C(1) << (data[0] / 2 % 48) : 0;
    if (data[0] & 1) {
        const struct memory_file files[] = {
            {"model.safetensors.index.json", data + 1, length - 1, length - 1},
            {"a.safetensors", shard, sizeof shard - 1, sizeof shard - 1},
            {0}};
        check_files(files, "model.safetensors.index.json");
        return 0;
    }
    const struct memory_file files[] = {
        {"model.safetensors", data + 1, length - 1, length - 1 + hole}, {0}};
    check_files(files, "model.safetensors");
    return 0;
}
