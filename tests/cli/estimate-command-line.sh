# SPDX-License-Identifier: MIT
# What is to be pasted is a whole command line, in quotes where the shell wants them. The line that is
# printed, put together again, is the one in JSON.
mkdir -p "a folder" models/qwen
memtally sample-model smollm-135m "a folder/it's.gguf" --sparse --quiet
cat >models/qwen/config.json <<END
{"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
 "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
 "max_position_embeddings": 40960, "torch_dtype": "bfloat16", "tie_word_embeddings": true}
END
show()
{
    memtally estimate "$@" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["command_line"])' >line
    memtally estimate "$@" | sed -n '/^Command line/,/^$/p' | sed '1d' | python3 -c '
import sys
print(sys.stdin.read().replace(" \\\n", " ").strip().replace("\n", " "))' | cmp - line
    cat line
}
show "a folder/it's.gguf" -c 4096
show "a folder/it's.gguf" -c 4096 --device 2x8GiB --override-tensor 'ffn_.*=CPU'
show "a folder/it's.gguf" -c 4096 --program bench
show "a folder/it's.gguf" -c 4096 --program node-llama-cpp
show "a folder/it's.gguf" -c 4096 --engine ollama
show "a folder/it's.gguf" -c 4096 --engine ik_llama.cpp
show models/qwen -c 4096
for engine in vllm sglang trt-llm tgi transformers exllamav3; do
    show models/qwen -c 4096 --engine $engine --device 24GiB
done
show models/qwen/config.json -c 4096 --engine vllm --device 2x24GiB --tensor-parallel 2
cd models/qwen
show config.json -c 4096 --engine vllm --device 24GiB
cd ../..
# A line of JavaScript goes on without a backslash, which is none of its tokens.
memtally estimate "a folder/it's.gguf" -c 4096 --program node-llama-cpp | sed -n '/^Command line/,/^$/p'
