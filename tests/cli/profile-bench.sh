# SPDX-License-Identifier: MIT
printf GGUF >model.gguf
FAKE=good memtally profile model.gguf --engine llama-bench --format csv --output out \
    --engine-path "$MEMTALLY_TESTS/../support/engines" | cut -d , -f 1-4
cut -d , -f 1-4 out/report.csv
grep -c '"schema": "memtally/1"' out/report.json
grep '"version"' out/report.json
