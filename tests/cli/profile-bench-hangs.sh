# SPDX-License-Identifier: MIT
# What may be kept is kept, and nothing half written is. A busy machine may not let it come to where it hangs at once.
printf GGUF >model.gguf
for seconds in 1 8 50; do
    rm -rf out
    FAKE=hang memtally profile model.gguf --engine llama-bench --format csv --output out --timeout $seconds \
        --engine-path "$MEMTALLY_TESTS/../support/engines" 2>said
    status=$?
    [ "$(ls out | grep -c '^[0-9]')" -lt 2 ] || break # the shell, and what it became
done
sed 's/for [0-9]* s/for N s/' said >&2
ls out | sed 's/^[0-9]*-[0-9]*\.mtz$/PROCESS.mtz/'
exit $status
