# SPDX-License-Identifier: MIT
# What was learnt is counted once for each run, shown, and forgotten; nothing but the residue gets in.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
export XDG_STATE_HOME="$PWD/state"
estimate 1000 400 900 100 >estimate.json
report 1000 400 900 600 >one.json
report 9000 9000 9000 800 >two.json
memtally compare one.json estimate.json --learn --json | grep -A 30 '"learnt"'
memtally compare one.json estimate.json --learn | grep note
memtally compare two.json estimate.json --learn | grep -A 2 Learnt
grep -c '"category"' state/memtally/residues.json
memtally compare --forget vllm
memtally compare --forget llama.cpp@b11434
memtally compare --forget
ls state/memtally
echo banana >state/memtally/residues.json
memtally compare one.json estimate.json --learn
echo "-- $?"
ls state/memtally
