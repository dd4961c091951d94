# SPDX-License-Identifier: MIT
# Another profiler's file: it was measured, so that it comes first whatever the order.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
profiler 13.5 0.4 0.9 0.6 15.4 >theirs.json
estimate 13500000000 400000000 900000000 600000000 >estimate.json
memtally compare estimate.json theirs.json
memtally compare estimate.json theirs.json --gb-is GiB --format csv
memtally compare theirs.json --calc-weights 13.5 --format csv
