# SPDX-License-Identifier: MIT
# Files that are damaged or say what cannot be: the file, the key and the byte are named.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
report 1000 400 900 600 >good.json
try() {
    cat >bad.json
    memtally compare bad.json good.json >/dev/null
    echo "$?"
}
printf '' | try
printf '{"memory_breakdown": {"kv_cache_gb": 1' | try
printf '[1, 2]' | try
printf '{"memory_breakdown": 7}' | try
printf '{"other": 7}' | try
printf 'GGUF and so on' | try
printf '{"memory_breakdown": {}}' | try
printf '{"memory_breakdown": {"kv_cache_gb": NaN}}' | try
printf '{"memory_breakdown": {"kv_cache_gb": -1}}' | try
printf '{"memory_breakdown": {"total_gb": 2, "kv_cache_gb": "1"}}' | try
printf '{"memory_breakdown": {"kv_cache_gb": 1e300}}' | try
printf '{"memory_breakdown": {"kv_cache_gb": 1e999}}' | try
printf '{"memory_breakdown": {"kv_cache_gb": 99999999999999999999}}' | try
printf '{"memory_breakdown": {"kv_cache_gb": 1, "kv_cache_gb": 2}}' | try
printf '{"schema": "memtally/2", "kind": "measurement", "places": []}' | try
printf '{"schema": "memtally/1", "kind": "comparison", "places": []}' | try
printf '{"schema": "memtally/1", "kind": "measurement"}' | try
printf '{"schema": "memtally/1", "kind": "measurement", "places": [7]}' | try
printf '{"schema": "memtally/1", "kind": "measurement", "places": [{"place": "host"}, {"place": "host"}]}' | try
place() {
    printf '{"schema": "memtally/1", "kind": "measurement", "places": [{"place": "host", "rows": [%s]}]}' "$1"
}
place '{"category": "banana"}' | try
place '7' | try
place '{"category": "weights", "resident_bytes": -5}' | try
place '{"category": "weights", "resident_bytes": 1.5}' | try
place '{"category": "weights", "resident_bytes": 9223372036854775807}' | try
place '{"category": "weights", "detail": [{"name": "a"}, {"name": 5}]}' | try
place '{"category": "weights", "detail": {}}' | try
head -c 100000 /dev/zero | tr '\0' '[' | try
head -c 300 good.json | try
