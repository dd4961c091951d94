# SPDX-License-Identifier: MIT
# Formats without notes have it said beside them that a file could not be read.
memtally run -q -o part -- true
head -c 100 part/watch.mtz >cut && mv cut part/watch.mtz
memtally report part --format csv 2>&1 >/dev/null
memtally report part --json 2>&1 >/dev/null
exit 0
