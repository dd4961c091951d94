# SPDX-License-Identifier: MIT
# What does not go together.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
report 1000 400 900 600 >a.json
profiler 1 1 1 1 4 >theirs.json
try() {
    memtally compare "$@"
    echo "$? [$*]"
}
try
try a.json
try a.json a.json a.json
try a.json a.json --calc-weights 1
try a.json --estimate --calc-weights 1
try a.json --calc-weights banana
try a.json --calc-weights -1
try a.json --calc-weights nan
try a.json --calc-weights 1e300
try a.json ''
try a.json missing.json
try a.json /dev/null
try theirs.json --estimate
try a.json --estimate
try a.json --learn --calc-weights 1
try --forget a b
