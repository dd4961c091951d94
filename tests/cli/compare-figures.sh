# SPDX-License-Identifier: MIT
# A report against a calculator's figures, in GB of 10^9 bytes and in GiB: the weights are exact in one
# of them only, and the calculator counted every head's keys and values.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
report 13500000000 400000000 900000000 600000000 >report.json
memtally compare report.json --calc-weights 13.5 --calc-kv 1.6 --calc-activations 0.9 \
    --calc-overhead 0.6 --calc-unit GB
echo "-- $?"
memtally compare report.json --calc-weights 13.5 --calc-kv 0.4 --calc-activations 0.9 \
    --calc-overhead 0.6 --calc-unit GiB
echo "-- $?"
