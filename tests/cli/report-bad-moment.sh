# SPDX-License-Identifier: MIT
mkdir empty
memtally report --at 3x empty
