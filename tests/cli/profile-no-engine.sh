# SPDX-License-Identifier: MIT
printf GGUF >model.gguf
MEMTALLY_ENGINES=$PWD/nothing PATH=$(dirname "$(command -v memtally)") memtally profile model.gguf
