# SPDX-License-Identifier: MIT
memtally sample-model llama-3.2-1 out.gguf
echo "$?"
memtally sample-model nonsense out.gguf
echo "$?"
memtally sample-model smollm-135m
echo "$?"
ls
