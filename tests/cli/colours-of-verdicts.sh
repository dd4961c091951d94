# SPDX-License-Identifier: MIT
# Verdicts have a colour where a terminal has colours and they are wanted: green fits, yellow has a
# condition, red cannot. Nothing else of the line changes.
memtally sample-model llama-3.1-8b m.gguf --sparse --quiet
show()
{
    script -qec "memtally estimate m.gguf -c 4096 --device $1" /dev/null </dev/null | head -n 1 |
        tr -d '\r' | sed "s/$(printf '\033')/ESC/g; s/ *gpu:0.*//; s/ [ 0-9].*//"
}
for size in 24GiB 12GiB 1MiB; do
    TERM=xterm show "$size"
done
echo "without colours"
NO_COLOR=1 TERM=xterm show 24GiB
TERM=dumb show 24GiB
memtally estimate m.gguf --device 24GiB -o fits.txt
grep -c "$(printf '\033')" fits.txt
# Tables of several verdicts have it too.
TERM=xterm script -qec "memtally estimate --best-quant m.gguf m.gguf -d 24GiB" /dev/null </dev/null |
    tr -d '\r' | grep -c "$(printf '\033')\[1;32mFITS"
exit 0
