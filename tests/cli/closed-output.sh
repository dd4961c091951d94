# SPDX-License-Identifier: MIT
memtally help >&-
