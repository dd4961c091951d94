# SPDX-License-Identifier: MIT
# An engine that ignores SIGTERM and has a child that does so too.
printf GGUF >model.gguf
FAKE=stubborn memtally profile model.gguf --engine llama-bench --timeout 4 \
    --engine-path "$MEMTALLY_TESTS/../support/engines"
status=$?
until ! kill -0 "$(cat hanging)" 2>/dev/null; do sleep 0.1; done
exit $status
