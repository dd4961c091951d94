# SPDX-License-Identifier: MIT
# A report that fails leaves the output file alone.
echo old >out
memtally report --output out nowhere
echo "$?"
cat out
ls
