# SPDX-License-Identifier: MIT
memtally help >/dev/full
