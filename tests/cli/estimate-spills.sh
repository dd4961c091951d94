# SPDX-License-Identifier: MIT
# Without --gpu-layers llama-server leaves on the host what it has no room for.
memtally sample-model llama-3.1-8b model.gguf --sparse --quiet --type q4_k
memtally estimate model.gguf --context 8192 --device 4GiB --json > out.json
echo "exit $?"
python3 - << 'END'
import json

estimate = json.load(open("out.json"))
layers = estimate["settings"]["gpu_layers"]
print(estimate["verdict"], 0 < layers < 33, f"-ngl {layers}" in estimate["flags"])
print(estimate["places"][1]["total_high_bytes"] <= 4 << 30)
print(f"{33 - layers} of 33" in estimate["reason"])
END
