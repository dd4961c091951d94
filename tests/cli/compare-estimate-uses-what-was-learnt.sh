# SPDX-License-Identifier: MIT
# A measurement that held more of everything teaches the program's own memory and nothing else: weights
# and cache are estimated as before, at this context and at twice as long a one.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
memtally sample-model smollm-135m model.gguf --sparse >/dev/null
rows() {
    memtally estimate model.gguf --context "$1" --format csv | grep ',row,' | cut -d , -f 3-6
}
rows 2048 >before.csv
rows 4096 >before-4096.csv
memtally estimate model.gguf --context 2048 --json --output estimate.json
report 900000000 400000000 300000000 123456789 >measured.json
memtally compare measured.json estimate.json --learn --output /dev/null
rows 2048 | diff before.csv - | grep '^>'
rows 4096 | diff before-4096.csv - | grep '^>'
memtally estimate model.gguf --context 2048 --engine llama.cpp@9840 | grep -c calibrated
memtally estimate model.gguf --context 2048 | grep -c calibrated
memtally compare --forget llama.cpp
rows 2048 | diff before.csv - && echo as before
