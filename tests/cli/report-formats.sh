# SPDX-License-Identifier: MIT
# The same recording in every format.
memtally run -q -o rec -- true
memtally report rec | head -n 1
memtally report rec --json | grep -c "\"schema\": \"memtally/1\""
memtally report rec --format csv | head -n 1
memtally report rec --json --output a.json
memtally report rec --format json >b.json
cmp a.json b.json && ls a.json
memtally report rec >/dev/full
echo "$?"
