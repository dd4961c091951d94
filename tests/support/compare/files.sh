# SPDX-License-Identifier: MIT
# Files to compare, written by hand. The figures are bytes, of the profiler gigabytes.

# report WEIGHTS KV ACTIVATIONS RUNTIME [DETAILS]: a measurement of one place.
report() {
    tally measurement resident_bytes "$@"
}

# estimate WEIGHTS KV ACTIVATIONS RUNTIME
estimate() {
    tally estimate allocated_bytes "$@"
}

tally() {
    cat <<END
{
  "schema": "memtally/1",
  "kind": "$1",
  "engine": {"name": "llama.cpp", "version": "b11434"},
  "model": {"name": "a-model", "architecture": "llama"},
  "settings": {"context_tokens": 2048, "ubatch": 512},
  "moment": "peak",
  "moment_ns": $(($3 + $6)),
  "places": [{
    "place": "host",
    "total_resident_bytes": $(if [ "$1" = measurement ]; then echo $(($3 + $4 + $5 + $6)); else echo null; fi),
    "unattributed_bytes": $(if [ "$1" = measurement ]; then echo 0; else echo null; fi),
    "rows": [
      {"category": "weights", "allocated_bytes": $3, "resident_bytes": $(resident "$1" "$3"), "provenance": "exact"},
      {"category": "kv_cache", "allocated_bytes": $4, "resident_bytes": $(resident "$1" "$4"), "provenance": "exact"},
      {"category": "activations", "allocated_bytes": $5, "resident_bytes": $(resident "$1" "$5"), "provenance": "exact"},
      {"category": "runtime", "$2": $6, "provenance": "derived", "detail": [$7]}
    ]
  }]
}
END
}

resident() {
    if [ "$1" = measurement ]; then echo "$2"; else echo null; fi
}

# profiler WEIGHTS KV ACTIVATIONS OVERHEAD TOTAL
profiler() {
    cat <<END
{
  "memory_breakdown": {
    "model_weights_gb": $1,
    "kv_cache_gb": $2,
    "activations_gb": $3,
    "framework_overhead_gb": $4,
    "total_gb": $5
  },
  "model_info": {"model_name": "a-model", "dtype": "torch.float16", "num_parameters": 6738415616}
}
END
}
