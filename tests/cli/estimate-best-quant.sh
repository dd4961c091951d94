# SPDX-License-Identifier: MIT
# The largest file that fits, with a table of all: 4.2, 8.0 and 15 GiB of weights on a card of 11.
for type in q4_0 q8_0 f16; do
    memtally sample-model llama-3.1-8b $type.gguf --sparse --quiet --type $type
done
memtally estimate --best-quant q4_0.gguf f16.gguf q8_0.gguf --device 11GiB --gpu-layers all --context 2048 > out
echo "exit $?"
grep -E '^answer' out
grep -E '^(q4_0|q8_0|f16).gguf ' out | sed 's/  */ /g' | cut -d ' ' -f 1-4,7
memtally estimate --best-quant q4_0.gguf f16.gguf --device 1GiB --gpu-layers all | grep -E '^answer'
memtally estimate --best-quant q4_0.gguf f16.gguf --device 1MiB --output out
echo "exit $?"
memtally estimate --best-quant q4_0.gguf f16.gguf --device 1MiB --json |
    python3 -c 'import json, sys; a = json.load(sys.stdin); print(a["kind"], a["answer"], len(a["estimates"]))'
memtally estimate --best-quant q4_0.gguf f16.gguf --format csv | grep -c '^model,'
