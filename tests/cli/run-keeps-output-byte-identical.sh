# SPDX-License-Identifier: MIT
# What the program prints is not touched, whatever memtally says.
for stream in 1 2; do
    sh -c "printf \"a\\0b\\n\\033[1mc\" >&$stream" >plain.1 2>plain.2
    memtally run -q -o "rec$stream" -- sh -c "printf \"a\\0b\\n\\033[1mc\" >&$stream" >run.1 2>run.2
    cmp plain.1 run.1 && cmp plain.2 run.2 || exit 1
done
memtally run -o rec3 -- printf hello 2>said
echo
tail -n 1 said
