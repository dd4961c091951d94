# SPDX-License-Identifier: MIT
: >plain
memtally run -- ./plain
echo "$?"
memtally run -- /
echo "$?"
ls
