# SPDX-License-Identifier: MIT
printf GGUF >model.gguf
for try in first second; do
    FAKE=good memtally profile model.gguf --engine llama-bench --output out --format csv \
        --engine-path "$MEMTALLY_TESTS/../support/engines" >/dev/null
    echo "$try $?"
done
