# SPDX-License-Identifier: MIT
printf GGUF >model.gguf
memtally profile model.gguf --engine-path nothing
