# SPDX-License-Identifier: MIT
# A total that is less than its parts, and parts that are more than was measured.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
report 13500000000 400000000 900000000 600000000 >report.json
memtally compare report.json --calc-weights 13.5 --calc-kv 0.4 --calc-activations 0.9 --calc-total 14
memtally compare report.json --calc-weights 27 --calc-kv 0.4 --calc-activations 0.9
