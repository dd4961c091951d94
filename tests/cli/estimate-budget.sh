# SPDX-License-Identifier: MIT
# An engine that takes a budget: the subtraction adds up, and the tokens are what the pool divides into.
mkdir model
cat > model/config.json << 'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
 "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256,
 "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": false}
END
memtally estimate model --engine vllm@0.11.0 --device 24GiB --context 8192 --json > out.json
echo "exit $?"
python3 - << 'END'
import json

estimate = json.load(open("out.json"))
pool = estimate["pool"]
spent = sum(pool[f"{part}_bytes"] for part in ("weights", "activations", "other", "graphs"))
print(estimate["verdict"], pool["requested_bytes"] - spent == pool["pool_bytes"])
# 32 layers of 8 heads of 128 keys and values, 2 bytes each; blocks of 16 tokens.
print(pool["bytes_per_token"] == 32 * 2 * 8 * 128 * 2, pool["pool_tokens"] % 16)
print(0 <= pool["pool_bytes"] - pool["pool_tokens"] * pool["bytes_per_token"] < 16 * pool["bytes_per_token"])
print(pool["pool_tokens_low"] <= pool["pool_tokens"] <= pool["pool_tokens_high"])
END
memtally estimate model --engine vllm@0.11.0 --device 24GiB | grep '^CANNOT' | cut -d ';' -f 1
memtally estimate model --engine vllm@0.11.0 --device 24GiB --max-context --json > out.json
echo "exit $?"
python3 - << 'END'
import json

estimate = json.load(open("out.json"))
value = estimate["answer"]["value"]
low = estimate["pool"]["pool_tokens_low"]
print(estimate["verdict"], value % 16, 0 <= low - value < 16)
END
