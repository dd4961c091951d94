# SPDX-License-Identifier: MIT
# A signal to memtally reaches the program, and memtally stays for its status.
mkfifo ready
memtally run -q -o rec -- sh -c "trap \"echo got it; exit 3\" TERM; echo ready >ready; while :; do sleep 0.01; done" &
read -r _ <ready
kill -TERM "$!"
wait "$!"
