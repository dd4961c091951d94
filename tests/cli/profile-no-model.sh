# SPDX-License-Identifier: MIT
memtally profile
