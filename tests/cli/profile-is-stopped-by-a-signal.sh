# SPDX-License-Identifier: MIT
# The engine gets the signal too, and is not there any more.
printf GGUF >model.gguf
FAKE=hang memtally profile model.gguf --engine llama-bench \
    --engine-path "$MEMTALLY_TESTS/../support/engines" &
until [ -s hanging ]; do sleep 0.1; done
kill -TERM $!
wait $!
status=$?
kill -0 "$(cat hanging)" 2>/dev/null && echo "the engine still runs"
exit $status
