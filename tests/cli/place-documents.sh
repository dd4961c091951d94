# SPDX-License-Identifier: MIT
# What engines other than llama.cpp are told stands in the JSON document. The bytes of a layer follow from its shapes:
# four matrices of attention, three of the feed-forward, two norms, in 16 bits.
config()
{
    cat <<END
{"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
 "intermediate_size": 14336, "torch_dtype": "bfloat16", "max_position_embeddings": 8192, "tie_word_embeddings": false, $1}
END
}
config '"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256' >llama.json
config '"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8,
 "num_experts_per_tok": 2' >mixtral.json
memtally place llama.json --engine transformers@4.57.6 --device 8GiB --host 4GiB --context 1024 --json >spilled
memtally place llama.json --engine transformers@4.57.6 --device 2x12GiB --context 1024 --json >split
memtally place llama.json --engine vllm@0.33.0 --device 4x24GiB --context 2048 --json >parallel
mixtral="mixtral.json --engine transformers@4.57.6 --quantise nf4 --context 1024 --device 2x16GiB"
memtally place $mixtral --policy balanced-experts --json >experts
memtally place $mixtral --compare --json >compared
python3 - <<'END'
import json


def read(name):
    with open(name) as file:
        return json.load(file)


LAYER = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096)

spilled = read("spilled")
modules = spilled["device_map"]
layers = [modules[f"model.layers.{i}"] for i in range(32)]
print("host", spilled["host_bytes"] == LAYER * layers.count("cpu") > 0, spilled["host_layers"] == 32 - layers.count(0))
print("disk", spilled["disk_bytes"] == LAYER * layers.count("disk") > 0)
print("the first layers leave, to the host as far as it goes", layers == sorted(layers, key=["cpu", "disk", 0].index),
      spilled["host_bytes"] <= 4 << 30 < spilled["host_bytes"] + LAYER)
print("the embedding stays on", modules["model.embed_tokens"], "limits", spilled["max_memory_bytes"]["cpu"] == 4 << 30)

split = read("split")
places = [unit["device"] for unit in split["units"]]
print("crossings", split["crossings_per_token"] == sum(a != b for a, b in zip(places, places[1:])) == 1)
print("the device map is the units'", all(split["device_map"][f"model.layers.{i}"] == places[1 + i] for i in range(32)))

for way in read("parallel")["parallel"]:
    print(way["tensor_parallel"], way["pipeline_parallel"], way["replicas"], way["verdict"],
          way["pool_tokens_low"] <= way["pool_tokens"])

experts = read("experts")
inner = [unit for unit in experts["units"] if unit["name"].startswith("layer")]
print("experts of the first layer on", inner[0]["experts_device"], "of the others by number",
      all(unit["experts_devices"] == [0, 1, 0, 1, 0, 1, 0, 1] for unit in inner[1:]))
print("experts", [device["experts"] for device in experts["devices"]],
      sum(device["experts_ratio"] for device in experts["devices"]), experts["flags"])

compared = read("compared")
print([one["policy"] for one in compared["compared"]])
least = compared["crossings_per_token"]
print("none crosses less", least, all(one["crossings_per_token"] >= least for one in compared["compared"]))
END
# What memtally cannot start, a place without the engine, and a program that takes no device: it gets the flags behind
# its own.
memtally place llama.json --engine exllamav3 --device 2x16GiB --context 2048 --json >exllamav3
memtally rehearse --placed exllamav3
echo "exit $?"
memtally sample-model llama-3.2-1b model.gguf --sparse --quiet
memtally place model.gguf --device 2x2GiB --context 2048 --json >placed
memtally rehearse --placed placed --engine-path nowhere
echo "exit $?"
memtally rehearse --placed placed -- sh -c 'echo "$@"' sh --own 2>said
echo "exit $?"
grep -e --own said
