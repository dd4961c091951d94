# SPDX-License-Identifier: MIT
memtally
