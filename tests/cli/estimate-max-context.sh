# SPDX-License-Identifier: MIT
# The answer fits, the next step does not; what the model was trained for is the end.
memtally sample-model smollm-135m model.gguf --sparse --quiet --context-length 65536
verdict()
{
    memtally estimate model.gguf --gpu-layers all "$@" --json > one.json
    python3 -c 'import json; print(json.load(open("one.json"))["verdict"])'
}
for device in 1GiB 1536MiB 4GiB; do
    memtally estimate model.gguf --device $device --max-context --json > out.json
    echo "exit $?"
    python3 -c 'import json; print(json.load(open("out.json"))["answer"]["value"])' > answer
    python3 -c 'import json; print(json.load(open("out.json"))["answer"]["limit"])'
    context=$(cat answer)
    echo "$((context % 256)) over, $(verdict --device $device --context "$context")"
    test "$context" = 65536 || echo "then $(verdict --device $device --context "$((context + 256))")"
done
memtally estimate model.gguf --device 1MiB --gpu-layers all --max-context > out
echo "exit $?"
grep -E '^(CANNOT|answer)' out | cut -c 1-32
