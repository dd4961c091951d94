# SPDX-License-Identifier: MIT
# A folder of its own for each, named after program and time.
memtally run -q -- true
memtally run -q -- true
ls -d memtally-true-[0-9]*-[0-9]* | wc -l
