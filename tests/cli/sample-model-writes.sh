# SPDX-License-Identifier: MIT
# The same seed gives the same file, another one does not.
small="--layers 1 --embedding-length 64 --ff-length 128 --heads 2 --vocabulary 512"
memtally sample-model custom a.gguf $small
memtally sample-model custom b.gguf $small --quiet
memtally sample-model custom c.gguf $small --quiet --seed 2
cmp a.gguf b.gguf && cmp -s a.gguf c.gguf || echo "another seed, another file"
head -c 4 a.gguf
echo
ls
