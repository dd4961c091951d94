# SPDX-License-Identifier: MIT
memtally profile nothing.gguf
