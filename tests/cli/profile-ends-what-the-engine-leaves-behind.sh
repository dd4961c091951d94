# SPDX-License-Identifier: MIT
# An engine that ignores SIGTERM and has a child that does so too. A busy machine may not let it come so far at once.
printf GGUF >model.gguf
for seconds in 4 50; do
    FAKE=stubborn memtally profile model.gguf --engine llama-bench --timeout $seconds \
        --engine-path "$MEMTALLY_TESTS/../support/engines" 2>said
    status=$?
    [ ! -s hanging ] || break
done
sed 's/for [0-9]* s/for N s/' said >&2
until ! kill -0 "$(cat hanging)" 2>/dev/null; do sleep 0.1; done
exit $status
