# SPDX-License-Identifier: MIT
# Without --gpu-layers as many layers go to the devices as they have room for.
memtally sample-model llama-3.1-8b model.gguf --sparse --quiet --type q4_k
memtally estimate model.gguf --context 8192 --device 4GiB --json > out.json
echo "exit $?"
python3 - << 'END'
import json

estimate = json.load(open("out.json"))
layers = estimate["settings"]["gpu_layers"]
print(estimate["verdict"], 0 < layers < 33, f"-ngl {layers}" in estimate["flags"])
print(estimate["reason"].split(" of ")[1].split(";")[0], int(estimate["reason"].split()[0]) == 33 - layers)
print(estimate["places"][1]["total_high_bytes"] <= 4 << 30)
open("more", "w").write(str(layers + 1))
END
memtally estimate model.gguf --context 8192 --device 4GiB --gpu-layers "$(cat more)" > out
grep -E '^(FITS|SPILLS)' out || echo one more layer does not fit
