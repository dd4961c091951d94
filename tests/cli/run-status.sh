# SPDX-License-Identifier: MIT
# The status of the program is the status of memtally.
memtally run -q -o a -- sh -c "exit 7"
echo "$?"
memtally run -q -o b -- sh -c "kill -9 \$\$"
echo "$?"
memtally run -q -o c -- true
echo "$?"
