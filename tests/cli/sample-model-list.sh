# SPDX-License-Identifier: MIT
memtally sample-model --list | head -n 2
memtally sample-model --list --type q8_0 --json | grep -c "\"shape\""
