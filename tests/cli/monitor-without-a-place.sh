# SPDX-License-Identifier: MIT
# Without a place a monitor shows the host first, then what else is there.
memtally monitor --count 1 --interval 1ms >lines
echo "exit $?"
awk '{print $3}' lines | head -1
awk '$3 !~ /^(host|cgroup|gpu[0-9]+)$/' lines
awk '$3 == "host"' lines | wc -l | tr -d ' '
