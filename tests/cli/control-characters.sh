# SPDX-License-Identifier: MIT
memtally "$(printf "a\033[31mb\n")"
