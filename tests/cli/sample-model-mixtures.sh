# SPDX-License-Identifier: MIT
# Mixtures are as llama.cpp's quantiser makes them: bits of a weight and GiB of Llama-3.1-8B as its
# tools/quantize/README.md has them are 4.6672 and 4.36 (Q4_K_S), 4.8944 and 4.58 (Q4_K_M), 5.7036 and
# 5.33 (Q5_K_M). The number of general.file_type is that of enum llama_ftype: 14, 15, 17.
for type in q4_k_s q4_k_m q5_k_m; do
    memtally sample-model llama-3.1-8b m.gguf --sparse --quiet -t $type
    memtally sample-model llama-3.1-8b m.gguf --sparse -t $type --json | python3 -c '
import json, sys
made = json.load(sys.stdin)
with open("m.gguf", "rb") as file:
    header = file.read(4096)
key = b"general.file_type"
at = header.index(key) + len(key) + 4
number = int.from_bytes(header[at:at + 4], "little")
print("%s %.4f %.2f %d" % (made["type"], made["tensor_bytes"] * 8 / made["parameters"], made["tensor_bytes"] / 2**30, number))'
done
# Random weights of any of them can be written, too.
for type in q4_k_s q4_k_m q5_k_m; do
    memtally sample-model llama-3.1-8b small.gguf --layers 4 --embedding-length 512 --ff-length 1024 --heads 8 \
        --kv-heads 2 --vocabulary 1024 -t $type
done
memtally sample-model smollm-135m m.gguf -t mxfp4
echo "exit $?"
