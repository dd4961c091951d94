# SPDX-License-Identifier: MIT
# Three ways to the same help.
memtally help help >a
memtally help --help >b
memtally help -h >c
cmp a b && cmp b c
