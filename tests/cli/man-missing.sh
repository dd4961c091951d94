# SPDX-License-Identifier: MIT
memtally help --man nowhere.scd help
