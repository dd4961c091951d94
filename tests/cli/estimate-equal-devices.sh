# SPDX-License-Identifier: MIT
# Devices that hold the same are shown once, with their numbers; JSON has them all.
memtally sample-model llama-3.1-8b model.gguf --sparse --quiet --type q4_k
memtally estimate model.gguf --context 8192 --device 8x24GiB > out
grep -E '^(gpu:|each of|devices)' out | sed 's/  *bytes.*//'
memtally estimate model.gguf --context 8192 --device 2x24GiB,16GiB,24GiB --split none > out
grep -E '^(gpu:|each of|devices)' out | sed 's/  *bytes.*//'
memtally estimate model.gguf --context 8192 --device 8x24GiB --json |
    python3 -c 'import json, sys; print([place["place"] for place in json.load(sys.stdin)["places"]])'
