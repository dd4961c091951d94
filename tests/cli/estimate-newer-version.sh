# SPDX-License-Identifier: MIT
# A version after the last one that the rules were held against is said once, and its bands are wider;
# wider still where it is newer than the tables too. llama.cpp's rules were held against build 11739,
# later than the build that is taken where none is said, and have bands of their own for what follows.
memtally sample-model smollm-135m model.gguf --sparse >/dev/null
for engine in llama.cpp llama.cpp@5000 llama.cpp@11739 llama.cpp@99999 ik_llama.cpp@99999 ollama@99.0.0; do
    memtally estimate model.gguf --engine $engine >out
    echo $engine "$(tr -s ' \n' ' ' <out | grep -o '[^ ]* [^ ]* came after [^,]*, the [a-z]*' || echo is known)"
done
cat >config.json <<END
{"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
 "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
 "max_position_embeddings": 40960, "torch_dtype": "bfloat16", "tie_word_embeddings": true}
END
for engine in vllm@0.16.0 vllm@0.33.0 vllm@0.34.0 sglang@0.5.23 sglang@0.5.24; do
    memtally estimate config.json --engine $engine -d H100 -c 8192 --json >out
    python3 - $engine <<'END'
import json, sys
said = json.load(open("out"))
rows = {row["category"]: row for row in said["places"][1]["rows"]}
row = rows["activations"]
notes = [note for note in said["notes"] if "came after" in note or "newest known" in note]
print(sys.argv[1], f"activations {row['low_bytes'] / row['allocated_bytes']:.2f} to {row['high_bytes'] / row['allocated_bytes']:.2f}", *notes)
END
done
