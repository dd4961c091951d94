# SPDX-License-Identifier: MIT
echo "not a model" >model.gguf
memtally profile model.gguf
