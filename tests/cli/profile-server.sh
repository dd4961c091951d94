# SPDX-License-Identifier: MIT
printf GGUF >model.gguf
memtally profile model.gguf --engine llama-server --batch-size 3 --format csv \
    --engine-path "$MEMTALLY_TESTS/../support/engines" | cut -d , -f 1-3
