# SPDX-License-Identifier: MIT
# The rows of a place sum to its total, and the parts of a row to the row.
memtally sample-model gemma-3-1b model.gguf --sparse --quiet --type q8_0
memtally estimate model.gguf --device 2x8GiB --json > out.json
python3 - << 'END'
import json

estimate = json.load(open("out.json"))
print(estimate["schema"], estimate["kind"], estimate["engine"]["name"], estimate["verdict"])
for place in estimate["places"]:
    for end in ("allocated", "low", "high"):
        rows = [row[f"{end}_bytes"] for row in place["rows"]]
        parts = [sum(part[f"{end}_bytes"] for part in row["detail"]) for row in place["rows"]]
        print(place["place"], end, rows == parts, sum(rows) == place[f"total_{end}_bytes"])
breakdown = estimate["memory_breakdown"]
total = sum(place["total_allocated_bytes"] for place in estimate["places"])
print(abs(breakdown["total_gb"] - total / 1e9) < 1e-9, estimate["gpu_info"]["num_gpus"])
END
