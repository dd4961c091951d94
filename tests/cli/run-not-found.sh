# SPDX-License-Identifier: MIT
memtally run -- no-such-program
echo "$?"
memtally run -- ./no-such-program
echo "$?"
ls
