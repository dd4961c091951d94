# SPDX-License-Identifier: MIT
memtally frobnicate
