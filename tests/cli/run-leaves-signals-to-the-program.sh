# SPDX-License-Identifier: MIT
# The program starts with the dispositions and the mask that memtally was started with. The last
# seven digits are the signals 1 to 28; libraries keep some of the others for themselves.
shown()
{
    "$@" grep -E "^Sig(Ign|Blk)" /proc/self/status | sed 's/:.*\(.......\)$/ \1/'
}
shown env >without
shown memtally run -q -o a -- env >with
cmp with without
