# SPDX-License-Identifier: MIT
# What --vary cannot run is said before anything runs.
memtally graphs --vary max_concurrency=16 -- true
memtally graphs --vary =none,16 -- true
memtally graphs --vary a=1,2,3 -- true
memtally graphs --vary a=1,2 folder
memtally graphs --device H200 folder
memtally graphs folder -- true
memtally graphs a b c
