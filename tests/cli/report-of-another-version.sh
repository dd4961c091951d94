# SPDX-License-Identifier: MIT
# A recording, a file of one, or a report that another version of memtally wrote is said to be one.
memtally run -q -o whole -- true
cp -r whole part
cp -r whole report
python3 - <<'END'
import glob

# The version stands in bytes 8 to 11 of a file: docs/FORMATS.md, "The header".
for path in glob.glob("whole/*") + ["part/watch.mtz"]:
    with open(path, "r+b") as file:
        file.seek(8)
        file.write((4).to_bytes(4, "little"))
END
echo '{"schema": "memtally/2", "kind": "measurement", "runs": []}' >report/report.json
memtally report whole 2>&1 | sed 's/[0-9]*-0/PID-0/'
memtally report part | grep -A 3 '^damaged'
memtally report report | grep -A 3 '^note .*report.json'
memtally compare report/report.json part 2>&1
exit 0
