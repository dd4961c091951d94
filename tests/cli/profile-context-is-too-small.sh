# SPDX-License-Identifier: MIT
printf GGUF >model.gguf
memtally profile model.gguf --context 100
