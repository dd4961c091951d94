# SPDX-License-Identifier: MIT
# What the engine's buffers say of the processor that it ran on counts before this machine's, and before both what is
# named. 134479872 weights of q8_0 take 38 bytes for 32 in the layout of AMX.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
memtally sample-model smollm-135m model.gguf --sparse --quiet --type q8_0
recording() {
    report "$1" 47185920 17416224 25000000 |
        sed -e "/\"weights\"/s/}/, \"detail\": [$2]}/" -e 's/"name": "a-model"/"path": "model.gguf"/'
}
part() {
    echo "{\"name\": \"$1\", \"allocated_bytes\": $2, \"resident_bytes\": $2, \"provenance\": \"exact\"}"
}
mapped=$(part CPU_Mapped 140205312)
recording $((140205312 + 159694848)) "$mapped, $(part AMX 159694848)" >amx.json
recording 140205312 "$mapped" >plain.json
weights() {
    memtally compare "$@" --estimate --json |
        python3 -c 'import json, sys; print(next(c["b_bytes"] for c in json.load(sys.stdin)["components"] if c["component"] == "weights") >> 20, "MiB")'
}
echo "a recording with AMX, on a machine without: $(weights amx.json)"
echo "one without, here: $(weights plain.json)"
echo "one without, on a machine with AMX: $(MEMTALLY_CPU=amx weights plain.json)"
echo "the same, with AMX named: $(weights plain.json --cpu amx)"
memtally compare amx.json --estimate --cpu avx2 >out
grep "^weights .*%" out
grep -A 2 "^weights .*a copy" out
