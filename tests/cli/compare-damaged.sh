# SPDX-License-Identifier: MIT
# One of two recordings of the same has a file that cannot be read: memtally says so of that one, and not of the other.
memtally run -q -o whole -- true
cp -r whole part
head -c 100 whole/watch.mtz >part/watch.mtz
memtally compare whole part | grep -A 1 '^note'
memtally compare part whole --json | grep 'could not be read'
memtally compare whole whole --json | grep -c 'could not be read'
exit 0
