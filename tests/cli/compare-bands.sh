# SPDX-License-Identifier: MIT
# Bands of one's own decide, and --fail-over makes the verdict the exit status.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
report 1000 400 900 600 >before.json
report 1010 400 900 600 >after.json
try() {
    memtally compare before.json after.json --format csv --output out.csv "$@"
    echo "$? $*"
}
try --fail-over
try --fail-over --band weights=0.5%
try --band weights=0.5%
try --fail-over --band weights=0.01,kv=0
try --fail-over --band 'weights=1%,total=0'
try --band banana=1%
try --band weights
try --band weights=
try --band weights=%
try --band weights=-1%
try --band weights=nan
try --band weights=1%,
try --band weights=1%x
