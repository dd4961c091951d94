# SPDX-License-Identifier: MIT
memtally help --complet bash
