# SPDX-License-Identifier: MIT
# The reader closes its end before the writer starts: it wants no more, and that is no complaint. The
# status is that of a program which SIGPIPE ended, so that `set -o pipefail` sees the same as of others.
after_reader()
{
    mkfifo gate
    {
        read -r _ <gate
        memtally "$@"
        echo "$* status $?" >&2
    } | {
        exec <&-
        echo go >gate
    }
    rm gate
}
memtally sample-model smollm-135m m.gguf --sparse --quiet
after_reader help
after_reader help --completion bash
after_reader --version
after_reader estimate m.gguf
after_reader estimate m.gguf --json
after_reader estimate missing.gguf --json
after_reader compare a b --json
after_reader sample-model --list
after_reader doctor --json
