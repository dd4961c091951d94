/* SPDX-License-Identifier: MIT */
/* An estimate made by hand: a host and two devices, one of them with what rounds badly, and a pool.
 */
#ifndef MT_TESTS_SAMPLE_ESTIMATE_H
#define MT_TESTS_SAMPLE_ESTIMATE_H

#include <memtally/predict.h>
#include <memtally/units.h>

#include "sample_tally.h"

#define KIB (UINT64_C(1) << 10)

#define PART(name, rule, bytes, low, high, provenance)                                             \
    {                                                                                              \
        name, bytes, MT_UNKNOWN, 0, MT_PROVENANCE_##provenance, rule, low, high                    \
    }
#define ROW(category, bytes, low, high, provenance, details)                                       \
    {                                                                                              \
        MT_CATEGORY_##category, bytes, MT_UNKNOWN, low, high, 0, MT_PROVENANCE_##provenance,       \
            sizeof(details) / sizeof *(details), details                                           \
    }

static const struct mt_tally_detail planned_mapped[] = {
    PART("mapped weights", "llama.cpp/weights_mapped", 282 * MIB, 282 * MIB, 282 * MIB, READ),
};
static const struct mt_tally_detail planned_runtime[] = {
    PART("program and its heap", "llama.cpp/runtime.server.cuda", 400 * MIB, 200 * MIB, 750 * MIB,
         ASSUMED),
};
static const struct mt_tally_row planned_host_rows[] = {
    ROW(WEIGHTS, 282 * MIB, 282 * MIB, 282 * MIB, READ, planned_mapped),
    ROW(RUNTIME, 400 * MIB, 200 * MIB, 750 * MIB, ASSUMED, planned_runtime),
};

/* Thirds of a hundredth of a MiB: rounded each by itself, the three would not add up. */
#define THIRD (100 * MIB + 3495)

static const struct mt_tally_detail planned_model[] = {
    PART("model buffer", "llama.cpp/weights", THIRD, THIRD, THIRD, READ),
};
static const struct mt_tally_detail planned_cache[] = {
    PART("KV cache, global layers", "llama.cpp/kv_cache", 60 * MIB, 60 * MIB, 60 * MIB, DERIVED),
    PART("KV cache, layers with a window and an evil\x1b[2J name", "llama.cpp/kv_cache_windowed",
         40 * MIB + 3495, 40 * MIB + 3495, 40 * MIB + 3495, DERIVED),
};
static const struct mt_tally_detail planned_compute[] = {
    PART("compute buffer", "llama.cpp/compute", THIRD, THIRD - 5 * MIB, THIRD + 30 * MIB, INFERRED),
};
static const struct mt_tally_row planned_device_rows[] = {
    ROW(WEIGHTS, THIRD, THIRD, THIRD, READ, planned_model),
    ROW(KV_CACHE, THIRD, THIRD, THIRD, DERIVED, planned_cache),
    ROW(ACTIVATIONS, THIRD, THIRD - 5 * MIB, THIRD + 30 * MIB, INFERRED, planned_compute),
};

#define UNKNOWN3 MT_UNKNOWN, MT_UNKNOWN

static const struct mt_tally_place planned_places[] = {
    {"host", UNKNOWN3, 8192 * MIB, MT_UNKNOWN, 0, 0, 2, planned_host_rows, 682 * MIB, 482 * MIB,
     1032 * MIB},
    {"gpu:0", UNKNOWN3, 512 * MIB, MT_UNKNOWN, 0, 0, 3, planned_device_rows, 3 * THIRD,
     3 * THIRD - 5 * MIB, 3 * THIRD + 30 * MIB},
    {"gpu:1", UNKNOWN3, 512 * MIB, MT_UNKNOWN, 0, 0, 0, NULL, 0, 0, 0},
};

static const char *const planned_notes[] = {
    "The context of a sequence is more than the model was trained for.",
};

static const struct mt_estimate_term planned_terms[] = {
    {"gpu:0", MT_CATEGORY_KV_CACHE, "KV cache, global layers", "llama.cpp/kv_cache",
     "src/llama-kv-cache.cpp", "30 layers x 1 stream x 2048 cells x (512 x f16 + 512 x f16)",
     60 * MIB, 60 * MIB, 60 * MIB, MT_PROVENANCE_DERIVED},
    {"gpu:0", MT_CATEGORY_ACTIVATIONS, "compute buffer", "llama.cpp/compute", NULL,
     "512 rows x 576 x 4 B", THIRD, THIRD - 5 * MIB, THIRD + 30 * MIB, MT_PROVENANCE_INFERRED},
};

static const uint64_t planned_device_bytes[] = {512 * MIB, 512 * MIB};
static const uint64_t planned_device_used[] = {64 * MIB, 0};
static const struct mt_tensor_override planned_overrides[] = {{"ffn_.*_exps", "CPU"}};

static const struct mt_estimate sample_estimate = {
    .tally = {.kind = MT_TALLY_ESTIMATE,
              .moment = {MT_MOMENT_PEAK, 0},
              .moment_ns = MT_UNKNOWN,
              .engine_name = "llama.cpp",
              .engine_version = "11434",
              .model_path = "m.gguf",
              .n_places = 3,
              .places = planned_places,
              .n_notes = 1,
              .notes = planned_notes},
    .settings = {.engine = "llama.cpp",
                 .context_tokens = 4096,
                 .batch = 2048,
                 .ubatch = 512,
                 .sequences = 1,
                 .kv_type_k = "f16",
                 .kv_type_v = "f16",
                 .flash_attention = MT_SWITCH_ON,
                 .has_gpu_layers = 1,
                 .gpu_layers = 31,
                 .cpu_moe_layers = MT_ALL,
                 .overrides = planned_overrides,
                 .n_overrides = 1,
                 .device_kind = "cuda",
                 .device_bytes = planned_device_bytes,
                 .device_used_bytes = planned_device_used,
                 .n_devices = 2,
                 .host_bytes = 8192 * MIB},
    .n_terms = 2,
    .terms = planned_terms,
    .verdict = MT_VERDICT_FITS,
    .reason = "gpu:0 takes 300.01 MiB, at most 330.01 MiB, of 512.00 MiB, of which others use "
              "64.00 MiB",
    .flags = "-c 4096 -b 2048 -ub 512 -ngl 31 -fa on -ctk f16 -ctv f16 "
             "-ot 'ffn_.*_exps=CPU, and more' -ts 1,1",
    .accuracy_ratio = 0.25,
};

static const struct mt_estimate_pool sample_pool = {
    .present = 1,
    .requested_bytes = 21600 * MIB,
    .weights_bytes = 15000 * MIB,
    .activations_bytes = 1200 * MIB,
    .other_bytes = 133 * MIB,
    .graphs_bytes = 900 * MIB,
    .pool_bytes = 4367 * (int64_t)MIB,
    .bytes_per_token = 128 * KIB,
    .pool_tokens = 34936,
    .pool_tokens_low = 30000,
    .pool_tokens_high = 36000,
    .concurrency = 8.53,
    .graphs_note = "vLLM's own figure was 2 to 100 times what its graphs took.",
};

#endif
