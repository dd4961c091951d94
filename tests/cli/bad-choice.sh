# SPDX-License-Identifier: MIT
memtally help --completion fish
