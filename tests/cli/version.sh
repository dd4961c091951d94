# SPDX-License-Identifier: MIT
memtally --version
