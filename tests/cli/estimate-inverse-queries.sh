# SPDX-License-Identifier: MIT
# Each answer, given back as a setting, fits; one more does not.
memtally sample-model smollm-135m model.gguf --sparse --quiet
answer()
{
    memtally estimate model.gguf --gpu-layers all "$@" --json > out.json || return
    python3 -c 'import json; a = json.load(open("out.json"))["answer"]; print(a.get("value", a.get("bytes")))'
}
verdict()
{
    memtally estimate model.gguf --gpu-layers all "$@" | cut -d ' ' -f 1 | head -n 1
}
n=$(answer --max-sequences --context 1024 --device 2GiB)
echo "sequences: $(verdict --sequences "$n" --context $((n * 1024)) --device 2GiB)," \
    "$(verdict --sequences $((n + 1)) --context $((n * 1024 + 1024)) --device 2GiB)"
bytes=$(answer --smallest-device --context 2048)
echo "device: $((bytes % 1048576)) over, $(verdict --device "$bytes")," \
    "$(verdict --device $((bytes - 1048576)))"
answer --max-batch --context 2048 --device 24GiB
