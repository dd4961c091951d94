# SPDX-License-Identifier: MIT
# A Python that has no packages: it is said which one lacks, also where ranks were to be started.
mkdir model
echo '{"model_type": "llama"}' >model/config.json
printf '#!/bin/sh\nexec python3 -I -S "$@"\n' >python
chmod +x python
for engine in transformers vllm sglang; do
    memtally profile model --engine "$engine" --engine-path ./python --tensor-parallel 2
    echo "$?" >&2
done
