# SPDX-License-Identifier: MIT
memtally help --json help && memtally help --json nothing; echo "$?"
