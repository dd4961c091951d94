# SPDX-License-Identifier: MIT
# Tables of PyTorch's layers and operators, written here as docs/FORMATS.md has them, beside a true recording.
memtally run --quiet -o rec -- true
column() { printf '%s\t' "$@" | sed 's/\t$/\n/'; }
{
    echo 'memtally-layers 1'
    column root module class kind depth calls weights_host_bytes weights_device_bytes cache_host_bytes cache_device_bytes \
        forward_peak_host_bytes forward_peak_device_bytes backward_peak_host_bytes backward_peak_device_bytes
    column 1 '(model)' Net module 0 3 1048576 0 0 0 2097152 - - -
    column 1 first Linear module 1 3 1048576 0 0 0 524288 - - -
} >rec/layers-7.tsv
{
    echo 'memtally-operations 1'
    column operation shapes count own_host_bytes total_host_bytes own_device_bytes total_device_bytes
    i=0
    while [ $i -lt 70 ]; do
        column "aten::op$i" '[2, 3]' $((i + 1)) 1024 2048 0 0
        i=$((i + 1))
    done
} >rec/operations-7.tsv
memtally report rec --layers
memtally report rec --operations | tail -2
memtally report rec --operations --all | tail -1
memtally report rec --layers --format csv | cut -d, -f1-4,8-9
cp -r rec other
memtally report rec other --operations --json >both.json
memtally report rec --operations --format csv | grep -c aten::op
memtally report rec other --layers | grep -c '^(model)'
python3 - <<'END'
import json

both = json.load(open("both.json"))
print(len(both), [one["recording"] for one in both], both[0]["operations"] == both[1]["operations"])
print([row["count"] for row in both[0]["operations"]] == list(range(1, 71)), both[0]["operations"][0]["total_host_bytes"])
END
try()
{
    memtally report "$@"
    echo "exit $?"
}
try rec --layers --operations
try rec --layers --at exit
try rec --operations --top 3
try rec --layers --format folded
try rec other --layers --format csv
rm other/layers-* other/operations-*
try other --layers
try other --operations
echo 'memtally-layers 2' >other/layers-7.tsv
try other --layers
