# SPDX-License-Identifier: MIT
# From a config.json, from a GGUF file, and again without the tokens.
cat > config.json <<'END'
{"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "intermediate_size": 3072, "vocab_size": 151936,
 "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": true}
END
memtally sample-model --from config.json model.gguf --type q8_0
memtally sample-model --from model.gguf copy.gguf
cmp -n 4000000 model.gguf copy.gguf && echo the same header
memtally sample-model --from copy.gguf short.gguf --drop-vocabulary --json
mkdir folder && cp config.json folder
memtally sample-model --from folder folder.gguf --type q4_k_m --quiet
test "$(du -k short.gguf | cut -f 1)" -lt 64 && echo small on disk
ls
