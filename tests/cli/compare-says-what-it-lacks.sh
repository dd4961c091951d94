# SPDX-License-Identifier: MIT
# What one side does not say is noted, and what cannot be learnt is refused.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
export XDG_STATE_HOME="$PWD/state"
memtally sample-model smollm-135m model.gguf --sparse >/dev/null
notes() {
    memtally compare "$@" --json | sed -n '/"notes"/,/\]/p' | grep '^    "'
}
report 1000 400 900 600 >report.json
estimate 1000 400 900 100 >estimate.json
echo "-- the resident basis"
notes report.json estimate.json --basis resident
echo "-- parts that are resident only"
sed 's/"weights", "allocated_bytes": 1000/"weights", "allocated_bytes": null/' report.json >mapped.json
notes mapped.json estimate.json
echo "-- a test of llama-bench"
sed -e 's/"settings": {.*}/"settings": {}, "model_info": {"prompt_length": 512}/' -e 's|"name": "llama.cpp"|&, "path": "/bin/llama-bench"|' -e 's/"name": "a-model"/"path": "model.gguf"/' report.json >bench.json
notes bench.json --estimate
echo "-- no version"
sed -e 's/"version": "b11434"/"version": null/' -e 's/"name": "a-model"/"path": "model.gguf"/' report.json >unversioned.json
notes unversioned.json --estimate
echo "-- learning"
memtally compare report.json mapped.json --learn
echo "exit $?"
sed 's/, "architecture": "llama"//' estimate.json >nameless.json
memtally compare report.json nameless.json --learn
echo "exit $?"
for file in report estimate; do sed 's/"place": "host"/"place": "gpu:0"/' $file.json >$file-gpu.json; done
memtally compare report-gpu.json estimate-gpu.json --learn | grep -A 2 Learnt
grep -oE '"(device|place)": *"[a-z]+"' state/memtally/residues.json
