# SPDX-License-Identifier: MIT
printf GGUF >model.gguf
memtally profile model.gguf --prompt hello --prompt-tokens 7
