# SPDX-License-Identifier: MIT
# Who asked for JSON gets it of an error too, on standard output; stderr has the sentence for people.
try()
{
    echo "== $*"
    memtally "$@" 2>sentence
    echo "exit $?, $(wc -l <sentence) line for people"
}
printf '' >empty.gguf
try estimate missing.gguf --json
try estimate empty.gguf --format json
try estimate empty.gguf --contxt 4 --json
try report missing --json
try profile missing.gguf --json
try rehearse --json missing.gguf
try rehearse --json -d 24 -- true
try compare --json a b
try sample-model --json no-such-shape a.gguf
try sample-model --from missing.json a.gguf --json
try doctor --json --output
# Also of commands that write none.
try run --json -- true
try help --json nonsense
try --json nonsense
try nonsense --json
# Who did not, does not; neither where a program behind -- has a flag of that name.
try estimate missing.gguf
try run -- ./no-such-program --json
try run ./no-such-program --json
# A verdict is no error.
memtally sample-model smollm-135m m.gguf --sparse --quiet
memtally estimate m.gguf -d 64MiB --json | grep -c '"kind": *"estimate"'
