# SPDX-License-Identifier: MIT
# Another tool's report.json, a damaged one, or one that cannot be opened, is a note; values of a wrong type are not known.
memtally run -q -o out true
try() {
    memtally report out --json | grep -e '"latency_ms"' -e '"name": "an engine"' -e "folder's report.json"
    echo "-- $? $1"
}
try missing
echo banana >out/report.json; try foreign
echo '[]' >out/report.json; try list
echo '{"schema": "memtally/2", "kind": "measurement", "runs": [{"run": 1}]}' >out/report.json; try newer
echo '{"schema": "memtally/1", "kind": "measurement", "engine": [], "model": 7, "settings": "x",
    "runs": [7, {"run": "1"}, {"run": 2, "latency_ms": "banana"}], "phases": {"name": 1}}' >out/report.json
try types
echo '{"schema": "memtally/1", "kind": "measurement", "engine": {"name": "an engine", "version": 5},
    "runs": [{"run": 1, "latency_ms": 12.5}], "phases": [{}, {"name": 5}]}' >out/report.json
try parts
rm out/report.json; mkdir out/report.json; try folder
rmdir out/report.json; ln -s report.json out/report.json; try unread
