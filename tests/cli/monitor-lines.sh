# SPDX-License-Identifier: MIT
memtally monitor --device host --device host --count 2 --interval 1ms |
    sed -E 's/^ +[0-9.]+ s/T s/; s/[0-9.]+ ([KMGT]iB)/N \1/g; s/[KMGT]iB/B/g; s/[0-9.]+ %/P %/; s/ +/ /g; s/(low|moderate|high|critical)$/pressure/'
memtally monitor --device tape
echo "exit $?"
memtally monitor --interval 0
echo "exit $?"
memtally monitor --pid 2147483647 2>/dev/null
echo "exit $?"
