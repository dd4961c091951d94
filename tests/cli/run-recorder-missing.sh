# SPDX-License-Identifier: MIT
MEMTALLY_RECORDER=/nowhere/recorder.so memtally run -- true
