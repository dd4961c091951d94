# SPDX-License-Identifier: MIT
# What may be kept is kept, and nothing half written is.
printf GGUF >model.gguf
FAKE=midway memtally profile model.gguf --engine llama-bench --format csv --output out  \
    --engine-path "$MEMTALLY_TESTS/../support/engines"
status=$?
ls out | sed 's/^[0-9]*-[0-9]*\.mtz$/PROCESS.mtz/'
exit $status
