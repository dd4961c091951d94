# SPDX-License-Identifier: MIT
# A version that the tables do not know yet is said to be taken as the newest that they know. llama.cpp's rules were held against
# build 11739, later than the build that is taken where none is said: only what came after it is said to.
memtally sample-model smollm-135m model.gguf --sparse >/dev/null
for engine in llama.cpp llama.cpp@5000 llama.cpp@11739 llama.cpp@99999 ik_llama.cpp@99999; do
    memtally estimate model.gguf --engine $engine >out
    echo "$engine: $(grep -c 'newest known version' out) newest, $(grep -c 'came after 11739' out) after"
done
