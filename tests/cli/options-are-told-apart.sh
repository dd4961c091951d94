# SPDX-License-Identifier: MIT
# A value that an option cannot have, and options that exclude each other: memtally says which and what it wants, and starts nothing.
say() {
    memtally "$@"
    echo "$1: $?"
}
say attach
say attach 4711 --container box
say attach me
say attach $$ --for soon
say attach $$ --at sometime
say exec -- touch started
say exec --need host=much -- touch started
say exec --need host=1GiB --wait soon -- touch started
say monitor --interval soon
say monitor --interval 1us
say monitor --interval 2s --up-to 1s
memtally sample-model smollm-135m m.gguf --sparse --type q8_0 >made
say profile m.gguf --prompt ''
say profile m.gguf --prompt a --prompt-tokens 4
say profile m.gguf --layers
say profile m.gguf --layers --engine llama-bench
say profile folder --engine transformers --operations --json
say run -o "$(printf %5000s | tr ' ' a)" -- touch started
say compare --forget vllm sglang
ls
