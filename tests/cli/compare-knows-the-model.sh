# SPDX-License-Identifier: MIT
# What the model says explains the figures: SmolLM-135M has 9 heads that share 3 keys and values, 134.5
# million parameters, and an output that is its token embedding (49152 x 576).
. "$MEMTALLY_TESTS/../support/compare/files.sh"
memtally sample-model smollm-135m model.gguf --sparse --type q8_0 >/dev/null
report 143025408 47185920 100000000 30000000 >report.json
try() {
    memtally compare report.json --model model.gguf --calc-weights 0.143 --calc-kv 0.0472 \
        --calc-activations 0.1 --calc-overhead 0.03 "$@" --json | grep '"reason"'
    echo "-- [$*]"
}
try
try --calc-kv 0.1416                    # three times
try --calc-kv 0.0944                    # twice
try --calc-weights 0.26903              # 16 bits a parameter
try --calc-weights 0.17311              # and the embedding once more, 49152 x 576 x 34/32 bytes
try --calc-activations 0.20066          # 512 rows of 49152 logits, 4 bytes each
try --calc-activations 0.13775          # scores of 9 heads, 512 x 2048, 4 bytes each
