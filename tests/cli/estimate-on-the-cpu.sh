# SPDX-License-Identifier: MIT
# 30 layers x 2048 tokens x 2 x 192 x 2 bytes are 45 MiB of keys and values.
memtally sample-model smollm-135m model.gguf --sparse --quiet
memtally estimate model.gguf > out
echo "exit $?"
grep -E '^(UNKNOWN|model|engine|weights|kv_cache) ' out | sed 's|  *| |g'
grep -A 1 '^Command line' out
