# SPDX-License-Identifier: MIT
# The largest file that fits, with a table of all: 4.2, 8.0 and 15 GiB of weights on a card of 11.
for type in q4_0 q8_0 f16; do
    memtally sample-model llama-3.1-8b $type.gguf --sparse --quiet --type $type
done
memtally estimate --best-quant q4_0.gguf f16.gguf q8_0.gguf --device 11GiB --gpu-layers all --context 2048 > out
echo "exit $?"
grep -E '^answer' out
grep -E '^(q4_0|q8_0|f16).gguf ' out | sed 's/  */ /g' | cut -d ' ' -f 1-4,9
memtally estimate --best-quant q4_0.gguf f16.gguf --device 1GiB --gpu-layers all | grep -E '^answer'
memtally estimate --best-quant q4_0.gguf f16.gguf --device 1MiB --output out
echo "exit $?"
memtally estimate --best-quant q4_0.gguf f16.gguf --device 1MiB --json |
    python3 -c 'import json, sys; a = json.load(sys.stdin); print(a["kind"], a["answer"], len(a["estimates"]))'
memtally estimate --best-quant q4_0.gguf f16.gguf --host 64GiB --format csv | grep -c '^model,'
# A file that cannot be read is said, and the others are judged; each place has its own room: what the
# host holds takes nothing from the card.
printf '<html>' >bad.gguf
memtally estimate --best-quant q4_0.gguf bad.gguf f16.gguf --device 11GiB -c 2048 | head -8 | sed 's/ *$//'
memtally estimate --best-quant bad.gguf q4_0.gguf --device 11GiB --json |
    python3 -c 'import json, sys; a = json.load(sys.stdin); print(a["answer"]["path"], a["failures"])'
memtally estimate --best-quant bad.gguf q4_0.gguf --device 11GiB -f csv | head -2 | cut -d , -f 1-3
memtally estimate --best-quant bad.gguf nowhere.gguf --device 11GiB 2>&1
echo "exit $?"
# Whether something fits is asked of a place with a size.
memtally estimate --best-quant q4_0.gguf f16.gguf 2>&1
echo "exit $?"
# Weights that are derived from a config.json are read without a word of the weights that are not there.
printf '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 2048}' >config.json
memtally estimate --best-quant config.json q4_0.gguf --device 11GiB -c 2048 | sed -n '3,6p' | sed 's/ *$//'
