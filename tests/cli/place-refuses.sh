# SPDX-License-Identifier: MIT
# Each is refused: 1 where it does not fit, 2 where the input is wrong; what is missing is said in bytes.
memtally sample-model llama-3.2-1b model.gguf --sparse --quiet --type q8_0
try()
{
    memtally place "$@" > out
    echo "exit $?"
}
try model.gguf
try model.gguf --device 0
try model.gguf --device 1GiB,1GiB --no-host --context 4096
try model.gguf --device 4GiB --pin 'blk\.99\.=0'
try model.gguf --device 4GiB --pin 'blk\.1\.=1'
try model.gguf --device 4GiB,4GiB --pin 'blk\.1\.=1' --pin 'blk\.2\.=0' --pin 'blk\.3\.=gpu1'
try model.gguf --device 4GiB,4GiB --pin 'blk\.1\.=1' --pin 'blk\.1\.=0'
try model.gguf --device 4GiB --pin 'blk['
try model.gguf --device 4GiB --pin 'blk[=0'
try model.gguf --device 4GiB --quantise nf4
try model.gguf --device 4GiB --engine transformers --quantise q4
try model.gguf --device 4GiB --engine trt-llm
try model.gguf --device 4GiB --objective speeed
try missing.gguf --device 4GiB
try model.gguf --device 4GiB,4GiB --link 0-1
try model.gguf --device 4GiB,4GiB --link 0-1=nvlink,1-2=pcie
printf 'layer,expert,count\n0,0,3\n0;1;2\n' > counts.csv
try model.gguf --device 4GiB --expert-traffic counts.csv
printf '0,0,3\n' > counts.csv
try model.gguf --device 4GiB --expert-traffic counts.csv
try model.gguf --device 4GiB --expert-traffic missing.csv
# A document that is no placement, and one that another policy made.
memtally rehearse --placed counts.csv
echo "exit $?"
memtally place model.gguf --device 4GiB,4GiB --policy in-order --json -o other.json
memtally rehearse --placed other.json
echo "exit $?"
memtally rehearse --placed other.json model.gguf
echo "exit $?"
