# SPDX-License-Identifier: MIT
# 350 GB that take a few MB.
memtally sample-model deepseek-v3 big.gguf --sparse --type q4_k
test "$(du -k big.gguf | cut -f 1)" -lt 65536 && echo small on disk
memtally sample-model deepseek-v3 big.gguf --sparse --type q4_k --json
