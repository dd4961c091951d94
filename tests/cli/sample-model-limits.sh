# SPDX-License-Identifier: MIT
# A number that is too large is a bad number. A limit on file sizes is an error that leaves nothing.
memtally sample-model custom out.gguf --layers 1000000 --embedding-length 64 --heads 4 --ff-length 64 \
    --vocabulary 512 --context-length 64
echo "$?"
(ulimit -f 64; memtally sample-model smollm-135m lim.gguf)
echo "$?"
ls
