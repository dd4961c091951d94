# SPDX-License-Identifier: MIT
# The reader closes its end before the writer starts.
mkfifo gate
{
    read -r _ <gate
    memtally help
    echo "status $?" >&2
} | {
    exec <&-
    echo go >gate
}
