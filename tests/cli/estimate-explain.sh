# SPDX-License-Identifier: MIT
# Every figure with its formula, whose numbers give it: 8 layers x 4096 cells x 512 of keys and values.
memtally sample-model custom model.gguf --sparse --quiet --layers 8 --embedding-length 1024 --ff-length 2048 \
    --heads 16 --kv-heads 4 --vocabulary 4096
memtally estimate model.gguf --context 4096 --sequences 1 --explain | grep -A 4 'kv_cache, '
memtally estimate model.gguf --context 4096 --sequences 1 --json > out.json
grep '"terms"' out.json || echo "terms are for --explain"
