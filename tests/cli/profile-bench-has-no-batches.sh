# SPDX-License-Identifier: MIT
printf GGUF >model.gguf
memtally profile model.gguf --engine llama-bench --batch-size 4 \
    --engine-path "$MEMTALLY_TESTS/../support/engines"
