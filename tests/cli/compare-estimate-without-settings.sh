# SPDX-License-Identifier: MIT
# A recording that does not say its context is compared with what the engine takes by itself, which is
# said of the estimate and never of the recording.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
memtally sample-model smollm-135m model.gguf --sparse >/dev/null
report 143025408 5898240 6881280 25000000 |
    sed -e 's/"settings": {.*}/"settings": {}/' -e 's/"name": "a-model"/"path": "model.gguf"/' >report.json
memtally compare report.json --estimate >out
grep -c 'A was run with' out
grep -A 2 'A does not say' out
