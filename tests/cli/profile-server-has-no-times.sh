# SPDX-License-Identifier: MIT
printf GGUF >model.gguf
FAKE=untimed memtally profile model.gguf --engine llama-server --format csv  \
    --engine-path "$MEMTALLY_TESTS/../support/engines"
