# SPDX-License-Identifier: MIT
# Two recordings: which categories and parts grew, appeared and went away.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
report 1000 400 900 600 '{"name": "libold.so", "allocated_bytes": null, "resident_bytes": 600}' >before.json
report 1000 800 900 700 '{"name": "libnew.so", "allocated_bytes": null, "resident_bytes": 700}' >after.json
memtally compare before.json after.json
memtally compare before.json after.json --json >compared.json
grep -e '"kind"' -e '"all_within"' -e '"name"' compared.json
memtally compare before.json after.json --format csv --output out.csv && cat out.csv
sed 's/"total_resident_bytes": 2900/"total_resident_bytes": 2901/' before.json >wrong.json
memtally compare wrong.json after.json | grep note
