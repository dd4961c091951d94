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
