# SPDX-License-Identifier: MIT
# Weights in the layout of the processor that is named, by an option or by the environment.
memtally sample-model smollm-135m model.gguf --sparse --quiet --type q8_0
try()
{
    memtally estimate model.gguf --context 512 --host 4GiB "$@" > out || { echo "exit $?"; return; }
    echo "${*:-alone} => $(sed -n '/^weights/,/^kv_cache/p' out | grep -v '^kv_cache' | tr -s ' ' | tr '\n' ';')"
    grep 'processor' out
}
try
try --cpu amx
try --cpu amx --no-repack
try --cpu amx --device 1GiB
try --cpu kleidiai
try --cpu unknown
MEMTALLY_CPU=amx
export MEMTALLY_CPU
try
try --cpu avx512
memtally estimate model.gguf --json | grep -o '"cpu": "[a-z]*"'
MEMTALLY_CPU=abacus
try
memtally estimate model.gguf --cpu abacus
