# SPDX-License-Identifier: MIT
memtally report ''
