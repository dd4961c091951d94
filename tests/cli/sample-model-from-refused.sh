# SPDX-License-Identifier: MIT
echo '{"model_type": "nonesuch", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 32}' > config.json
echo '{"model_type": "llama", "num_hidden_layers": 1e300}' > huge.json
printf 'no model' > text.gguf
try() { memtally sample-model "$@"; echo "$?"; }
try --from config.json out.gguf
try --from huge.json out.gguf
try --from text.gguf out.gguf
try --from nowhere.gguf out.gguf
try --from org/model out.gguf
try --from https://example.org/model.gguf out.gguf
try --from config.json
try --from config.json --layers 2 out.gguf
try --from config.json --random out.gguf
try smollm-135m out.gguf --type mxfp4
sed -i 's/nonesuch/qwen3/; s/: 64/: 4096/' config.json
memtally sample-model --from config.json small.gguf --quiet
try --from small.gguf small.gguf
try --from config.json nowhere/out.gguf
ls
