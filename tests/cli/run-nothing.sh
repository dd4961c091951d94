# SPDX-License-Identifier: MIT
memtally run --
