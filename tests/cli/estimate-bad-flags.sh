# SPDX-License-Identifier: MIT
# Each is refused with 2, saying what is wrong and what was perhaps meant.
memtally sample-model smollm-135m model.gguf --sparse --quiet
try()
{
    memtally estimate "$@"
    test $? = 2 || echo "exit $? of $*"
}
try
try model.gguf --contxt 4096
try model.gguf --device 24
try model.gguf --device 24GiB,
try model.gguf --device 99x1GiB
try model.gguf --device 0
try model.gguf --tensor-split 1,,2 --device 2x8GiB
try model.gguf --override-tensor ffn
try model.gguf --gpu-layers some
try model.gguf --gpu-layers -1
try model.gguf --cpu-moe 1.5
try model.gguf --flash-attn maybe
try model.gguf --kv-unified --no-kv-unified
try model.gguf --here --host 8GiB
try model.gguf --program bench --sequences 2
try model.gguf --program bench --max-sequences --device 8GiB
memtally estimate model.gguf --program bench --sequences 1 > out || echo "exit $?"
# What one program of llama.cpp has and another has not, and what is of another engine.
try model.gguf --program node-llama-cpp --no-repack
try model.gguf --program node-llama-cpp --no-kv-offload
try model.gguf --program node-llama-cpp --tensor-split 1,1 --device 2x8GiB
try model.gguf --program node-llama-cpp --override-tensor a=CPU --device 8GiB
try model.gguf --program node-llama-cpp --split none --device 2x8GiB
try model.gguf --program bench --swa-full
try model.gguf --program fit-params --kv-unified --sequences 4
memtally estimate model.gguf --program fit-params --no-kv-unified --sequences 4 > out || echo "exit $?"
try model.gguf --engine transformers --no-repack
try model.gguf --engine transformers --kv-unified
try model.gguf --engine transformers --batched-tokens 512
try model.gguf --tensor-split 3,1
try model.gguf --tensor-split 3,1 --device 8GiB
try model.gguf --max-context --max-batch --device 8GiB
try model.gguf --max-context --context 4096 --device 8GiB
try model.gguf --max-context
try model.gguf --engine lama.cpp
try model.gguf --engine llama.cpp@new
try model.gguf --kv-type q9_0
try model.gguf other.gguf
try missing.gguf
try https://example.org/model.gguf
try file:///model.gguf --remote
try org/model
try ''
