# SPDX-License-Identifier: MIT
# What differs between two versions adds up to the difference of their estimates, and a step does what its setting does.
cat >config.json <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
 "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256,
 "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": false}
END
memtally sample-model smollm-135m model.gguf --sparse --quiet
card="--device H100-80GB --context 16384 --batched-tokens 8192 --sequences 256 --eager"
memtally estimate config.json --changes vllm@0.19.1..0.33.0 $card --json >changes.json
echo "exit $?"
for version in 0.19.1 0.33.0; do
    memtally estimate config.json --engine vllm@$version $card --json >$version.json
done
memtally estimate config.json --engine vllm@0.19.1 $card --memory-share 0.92 --json >share.json
memtally estimate model.gguf --changes llama.cpp@9840..11434 --device 24GiB -c 8192 --json >builds.json
for build in 9840 11434; do
    memtally estimate model.gguf --engine llama.cpp@$build --device 24GiB -c 8192 --no-rehearse --json >$build.json
done
python3 - <<'END'
import json


def read(name):
    return json.load(open(name + ".json"))


def tokens(name):
    return read(name)["pool"]["pool_tokens"]


changes = read("changes")
print(changes["kind"], changes["engine"], changes["from"], changes["to"])
print(changes["before"]["pool_tokens"] == tokens("0.19.1"), changes["after"]["pool_tokens"] == tokens("0.33.0"))
print(sum(step["change_tokens"] for step in changes["changes"]) == tokens("0.33.0") - tokens("0.19.1"))
share = next(step for step in changes["changes"] if step["rule"] == "memory_share")
print(share["since"], share["keys"], share["change_tokens"] == tokens("share") - tokens("0.19.1") > 0)
builds = read("builds")
for number, place in enumerate(("host", "gpu:0")):
    moved = sum(step["places"][number]["change_bytes"] for step in builds["changes"])
    both = [read(build)["places"][number]["total_allocated_bytes"] for build in ("9840", "11434")]
    print(place, moved == both[1] - both[0], moved != 0)
END
memtally estimate config.json --changes vllm@0.19.1..0.20.0 $card --format csv | grep -E '^rule|^memory_share,.*,host'
memtally estimate config.json --changes vllm@0.20.0..0.20.0 $card | grep -c since
for wrong in vllm@0.33..0.19 vllm@0.19 vllm@0.19.. vllm nothing@1..2; do
    memtally estimate config.json --changes $wrong $card 2>&1
    echo "exit $?"
done
memtally estimate config.json --changes vllm@0.19..0.33 --device 24GiB --max-context 2>&1
echo "exit $?"
for other in --matrix "--engine-path engine"; do
    memtally estimate config.json --changes vllm@0.19..0.33 $card $other 2>&1
    echo "exit $?"
done
