# SPDX-License-Identifier: MIT
# A card by its name is of one generation: another one is refused, by names and by numbers. NVIDIA's and AMD's data sheets
# say which: the 4090 is Ada (8.9), the 7900 XTX RDNA 3 (gfx1100), the MI300X CDNA 3 (gfx942).
memtally sample-model smollm-135m model.gguf --sparse --quiet
try()
{
    memtally rehearse "$@" >out
    echo "exit $?"
}
try -d RTX4090 --generation ampere -- true
try -d RTX4090 --generation 8.6 -- true
try -d RTX4090,24GiB --generation 9.9 -- true
try model.gguf -d RX7900XTX --generation gfx942
try model.gguf -d RX7900XTX --generation cdna3
try model.gguf -d MI300X,RX7900XTX --generation gfx942
try -d RX7900XTX --generation rdna3 --layer cuda -- true
try -d RX7900XTX,RTX4090 -- true
try -d RX7900 -- true
# Its own generation is taken; this program takes no device.
try -d RTX4090 --generation ada -- true
try -d RTX4090 --generation 8.9 -- true
