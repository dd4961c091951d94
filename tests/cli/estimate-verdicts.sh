# SPDX-License-Identifier: MIT
# A word for each way that it can go, with the exit status that belongs to it.
memtally sample-model smollm-135m model.gguf --sparse --quiet
try()
{
    memtally estimate model.gguf "$@" > out
    status=$?
    echo "$* => $(cut -d ' ' -f 1 out | head -n 1), exit $status"
}
try
try --host 64GiB
try --host 300MiB
try --host 300MiB --no-mmap
try --host 4MiB
try --device 24GiB
try --device 24GiB --host 64GiB
try --device 24GiB --host 1MiB
try --device 1MiB
try --device 2x24GiB
try --device 24GiB,1MiB --split none
