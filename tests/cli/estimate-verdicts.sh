# SPDX-License-Identifier: MIT
# A word for each way that it can go, with the exit status that belongs to it.
memtally sample-model llama-3.1-8b model.gguf --sparse --quiet --type q4_k
try()
{
    memtally estimate model.gguf --context 8192 "$@" > out
    status=$?
    echo "${*:-alone} => $(cut -d ' ' -f 1 out | head -n 1), exit $status"
}
try
try --host 64GiB
try --host 6GiB
try --host 4GiB --no-repack
try --host 6GiB --no-mmap
try --host 16MiB
try --device 24GiB
try --device 24GiB --host 64GiB
try --device 24GiB --host 1MiB
try --device 4GiB --host 64GiB
try --device 4GiB --host 64GiB --gpu-layers all
try --device 1MiB
try --device 2x4GiB
try --device 24GiB,1MiB --split none
# Which card a size is taken for, and so its context, follows the size: the second answer is of a size like the middle.
middle=6GiB
for _ in 1 2; do
    memtally estimate model.gguf --context 8192 --device "$middle" --gpu-layers all --json > out.json
    middle=$(python3 -c 'import json; print(json.load(open("out.json"))["places"][1]["total_allocated_bytes"])')
done
memtally estimate model.gguf --context 8192 --device "$middle" --gpu-layers all > out
echo "exactly the middle => $(cut -d ' ' -f 1 out | head -n 1), exit $?"
