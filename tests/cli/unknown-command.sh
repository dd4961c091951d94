# SPDX-License-Identifier: MIT
memtally hlep
