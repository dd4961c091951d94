# SPDX-License-Identifier: MIT
# What is said adds up; a program that ends ends the view; peaks are those of the lines.
mkfifo hold
cat hold &
pid=$!
{
    memtally monitor --pid $pid --interval 5ms --json
    echo "exit $?" >status
} | {
    read -r first
    : >hold
    echo "$first"
    cat
} >lines
cat status
python3 - <<'EOF'
import json
seen = [json.loads(line) for line in open("lines")]
assert seen
for one in seen:
    assert one["allocated_bytes"] + one["available_bytes"] == one["total_bytes"], one
    assert abs(one["allocated_bytes"] / one["total_bytes"] - one["utilisation_ratio"]) < 1e-6, one
    assert one["schema"] == "memtally/1" and one["kind"] == "monitor" and one["place"].startswith("pid:")
    assert one["leak"] == "none" and one["full_s"] is None and one["pressure"] == "low"
times = [one["elapsed_s"] for one in seen]
assert times == sorted(times) and times[0] == 0
assert seen[-1]["peak_bytes"] == max(one["allocated_bytes"] for one in seen)
print("adds up")
EOF
