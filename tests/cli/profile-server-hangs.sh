# SPDX-License-Identifier: MIT
printf GGUF >model.gguf
FAKE=hang memtally profile model.gguf --engine llama-server --format csv --timeout 2 \
    --engine-path "$MEMTALLY_TESTS/../support/engines"
