# SPDX-License-Identifier: MIT
# This machine has room for 3 MiB of weights, and others use some of it.
memtally sample-model custom model.gguf --sparse --quiet --layers 2 --embedding-length 64 --ff-length 128 \
    --heads 4 --vocabulary 512
memtally estimate model.gguf --here --context 256 --json > out.json
echo "exit $?"
python3 - << 'END'
import json

settings = json.load(open("out.json"))["settings"]
print(0 < settings["host_used_bytes"] < settings["host_bytes"])
END
