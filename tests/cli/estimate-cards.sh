# SPDX-License-Identifier: MIT
# Cards by name, what a size is taken for, and which cards would do.
memtally sample-model llama-3.1-8b model.gguf --sparse --quiet --type q4_k
try()
{
    memtally estimate model.gguf --context 8192 --json "$@" > out.json
    python3 - "$*" <<'E2'
import json, sys
said = json.load(open("out.json"))
cards = [(of["gpu"], "by size" if of["by_size"] else "named") for of in said["settings"]["device_gpus"]]
context = [row for place in said["places"][1:2] for row in place["rows"] if row["category"] == "context"][0]
print(sys.argv[1], "=>", said["verdict"], said["settings"]["device_kind"], cards,
      f"{context['low_bytes'] >> 20} to {context['high_bytes'] >> 20} MiB, {context['provenance']}")
print(*[note for note in said["notes"] if "taken for" in note], sep="\n", end="\n" if any("taken for" in n for n in said["notes"]) else "")
if "answer" in said:
    print(" ", ", ".join(f"{of['count']} x {of['gpu']}" for of in said["answer"]["cards"]))
E2
}
try --device 24GiB
memtally estimate model.gguf -d 200GiB | grep 'is taken for a'
try --device RTX4090
try --device A100,a100-40gb
try --device "RX 7900 XTX"
try --device apple-16gb
try --smallest-device
memtally estimate model.gguf --context 8192 --device rtx4090 | head -n 1
memtally estimate model.gguf --context 8192 --smallest-device | grep ^cards
memtally estimate model.gguf --device RTX4090,RX7900XTX || echo "exit $?"
memtally estimate model.gguf --device rtx40 || echo "exit $?"
