# SPDX-License-Identifier: MIT
memtally help help help
