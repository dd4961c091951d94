# SPDX-License-Identifier: MIT
# The smallest of all cards that are known, not only of the usual ones: 41.6 GiB are had by an L40
# (44.4 GiB), where the usual card is an A6000. What is looked for is the size of no card, so that
# none is named after it.
memtally sample-model llama-3.1-8b model.gguf --sparse --quiet --type q4_k
try()
{
    memtally estimate model.gguf --smallest-device "$@" > out
    sed -n '1,/^cards/p' out
    tr -s ' \n' ' ' < out | grep -o "The driver's share is that.*another card\."
    memtally estimate model.gguf --smallest-device "$@" --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["settings"]["device_gpus"])'
}
try -c 300000
try -c 8192
try -c 300000 --device-kind rocm
