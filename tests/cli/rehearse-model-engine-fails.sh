# SPDX-License-Identifier: MIT
# An engine that talks without end, one that aborts, and more devices than ggml takes.
memtally sample-model smollm-135m model.gguf --sparse --quiet
engine()
{
    mkdir -p "$1"
    printf '#!/bin/sh\ntest "$1" = --version && echo "version: 11434 (x)" >&2 && exit\n%s\n' "$2" > "$1"/llama-server
    chmod +x "$1"/llama-server
}
engine chatty 'while :; do echo loading; sleep 0.05; done'
engine aborts 'echo "GGML_ASSERT(x) failed" >&2; kill -ABRT $$'
memtally rehearse model.gguf --engine-path chatty --timeout 1 2> said
echo "exit $?"
sed 's/after [0-9]* s/after N s/; s/(--timeout) and [a-z ]*/(--timeout)/; s/output: .*/output/' said
memtally rehearse model.gguf --engine-path aborts 2>&1
echo "exit $?"
memtally estimate model.gguf --engine-path aborts --json > said
echo "exit $?"
grep -o 'By rules, because memtally could not rehearse aborts: llama-server was killed by signal 6' said
memtally rehearse model.gguf --engine-path aborts --device 16x24GiB 2>&1
echo "exit $?"
memtally rehearse model.gguf --engine-path aborts --device 16x24GiB --sweep context=1k 2>&1
echo "exit $?"
memtally rehearse model.gguf --engine-path aborts --device 90MiB 2>&1
echo "exit $?"
