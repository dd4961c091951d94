# SPDX-License-Identifier: MIT
# A busy machine may not let it come to the warm-up in the first time that it is given.
printf GGUF >model.gguf
for seconds in 2 16 50; do
    FAKE=hang memtally profile model.gguf --engine llama-server --format csv --timeout $seconds \
        --engine-path "$MEMTALLY_TESTS/../support/engines" 2>said
    status=$?
    ! grep -q 'phase: warm-up' said || break
done
sed 's/for [0-9]* s/for N s/' said >&2
exit $status
