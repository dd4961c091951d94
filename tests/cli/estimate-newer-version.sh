# SPDX-License-Identifier: MIT
# A version that the tables do not know yet is said to be taken as the newest that they know.
memtally sample-model smollm-135m model.gguf --sparse >/dev/null
for engine in llama.cpp llama.cpp@5000 llama.cpp@99999; do
    memtally estimate model.gguf --engine $engine >out
    echo "$engine: $(grep -c 'newest known version' out)"
done
