# SPDX-License-Identifier: MIT
printf GGUF >model.gguf
mkdir tmp
for fake in good crash nonsense; do
    FAKE=$fake TMPDIR=$PWD/tmp memtally profile model.gguf --engine llama-bench \
        --engine-path "$MEMTALLY_TESTS/../support/engines" >/dev/null 2>&1
    echo "$fake $?"
done
ls tmp
