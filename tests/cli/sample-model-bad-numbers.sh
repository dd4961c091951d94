# SPDX-License-Identifier: MIT
memtally sample-model custom out.gguf --layers 2
echo "$?"
memtally sample-model smollm-135m out.gguf --type q9
echo "$?"
memtally sample-model smollm-135m nowhere/out.gguf --sparse
echo "$?"
ls
