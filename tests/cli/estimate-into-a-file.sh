# SPDX-License-Identifier: MIT
# What does not fit is an answer too: the file is written and the status says no.
memtally sample-model smollm-135m model.gguf --sparse --quiet
memtally estimate model.gguf --device 1MiB --json --output out.json
echo "exit $?"
grep '"verdict"' out.json
