/* SPDX-License-Identifier: MIT */
/* How a model will be run: what estimates, rehearsals and placements are asked for. */
#ifndef MEMTALLY_SETTINGS_H
#define MEMTALLY_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/processor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_residue; /* <memtally/residue.h> */

/* Settings with names. X(NAME, "name"). */
#define MT_SWITCH_LIST(X)                                                                          \
    X(AUTO, "auto")                                                                                \
    X(ON, "on")                                                                                    \
    X(OFF, "off")
#define MT_SPLIT_LIST(X)                                                                           \
    X(LAYER, "layer")                                                                              \
    X(ROW, "row")                                                                                  \
    X(NONE, "none")

#define MT_SWITCH_VALUE(NAME, name) MT_SWITCH_##NAME,
#define MT_SPLIT_VALUE(NAME, name)  MT_SPLIT_##NAME,
enum mt_switch { MT_SWITCH_LIST(MT_SWITCH_VALUE) };
enum mt_split { MT_SPLIT_LIST(MT_SPLIT_VALUE) };
#undef MT_SWITCH_VALUE
#undef MT_SPLIT_VALUE

/* "auto", "on", "off"; borrowed, static. */
const char *mt_switch_name(enum mt_switch value);

/* "layer", "row", "none"; borrowed, static. */
const char *mt_split_name(enum mt_split value);

/* The program of llama.cpp that runs: they reserve different numbers of output rows. X(NAME,
 * "name"). */
#define MT_PROGRAM_LIST(X)                                                                         \
    X(SERVER, "server")                                                                            \
    X(BENCH, "bench")                                                                              \
    X(FIT_PARAMS, "fit-params")                                                                    \
    X(NODE, "node-llama-cpp")

enum mt_program {
#define MT_PROGRAM_ENUM(NAME, name) MT_PROGRAM_##NAME,
    MT_PROGRAM_LIST(MT_PROGRAM_ENUM)
#undef MT_PROGRAM_ENUM
};

#define MT_ALL UINT64_MAX

/* Tensors whose name matches the regular expression `pattern` (POSIX extended, searched anywhere in
 * the name) go to `buffer`: "CPU", or a device's number. */
struct mt_tensor_override {
    const char *pattern;
    const char *buffer;
};

/* What is known of a device beside its size. */
struct mt_device_known {
    char gpu[32];           /* the card, by a name of the tables of GPUs, or ""; of an estimate: the
                               name in the table, of NVIDIA's also that which was taken */
    int is_by_size;         /* of an estimate: `gpu` was taken by the size alone, and the band is of
                               all cards that are about as large */
    uint64_t context_bytes; /* of a process on this very card, measured; 0: not */
    uint64_t graph_node_bytes; /* of each node of a graph there, measured; 0: not */
};

/* How the model will be run. Fill it from {0}: every 0 or NULL means the engine's own default,
 * unless something else is said. */
struct mt_predict_settings {
    const char *engine; /* "llama.cpp", "vllm@0.11.0"; NULL: llama.cpp. Without a version: the
                           newest one that the table knows */
    enum mt_program program;
    uint64_t context_tokens; /* 0: what the model was trained for */
    uint64_t batch;
    uint64_t ubatch;
    uint64_t sequences;
    const char *kv_type_k;
    const char *kv_type_v;
    enum mt_switch flash_attention;
    enum mt_switch unified_kv;
    int swa_full;                /* windowed layers keep the whole context */
    enum mt_switch mmap;         /* weights are mapped; OFF: read */
    enum mt_switch repack;       /* weights on the CPU may be copied into another layout */
    enum mt_processor processor; /* that the engine runs on; MT_PROCESSOR_UNKNOWN widens the band of
                                    weights on the host where no device is in use */
    int kv_on_host;              /* --no-kv-offload */
    enum mt_switch fusion; /* operations of expert layers are fused, and more is kept for them; OFF:
                              the engine's environment has GGML_CUDA_DISABLE_FUSION set */
    int has_gpu_layers;
    uint64_t gpu_layers; /* used where has_gpu_layers is set; MT_ALL: all of them */
    enum mt_split split;
    const double *tensor_split;
    size_t n_tensor_split;
    uint64_t cpu_moe_layers; /* layers whose experts stay on the host; MT_ALL: of all */
    const struct mt_tensor_override *overrides;
    size_t n_overrides;
    int has_mla_mode;
    uint64_t mla_mode;           /* ik_llama.cpp's -mla; used where has_mla_mode is set */
    uint64_t attn_max_batch_mib; /* ik_llama.cpp's -amb */
    uint64_t draft_tokens;       /* tokens that are drafted at a time */
    uint64_t max_concurrency;    /* requests up to which TensorRT-LLM drafts; 0: always */
    uint64_t graph_batch; /* the largest size that has a CUDA graph: requests, vLLM: tokens */
    int graph_padding;    /* TensorRT-LLM pads batches to the next size with a graph */

    double memory_share;     /* vLLM's gpu_memory_utilization, SGLang's mem_fraction_static,
                                TensorRT-LLM's free_gpu_memory_fraction */
    uint64_t batched_tokens; /* max_num_batched_tokens, chunked_prefill_size, max_num_tokens */
    uint64_t tensor_parallel;
    uint64_t pipeline_parallel;
    int eager;               /* no CUDA graphs */
    const char *weight_type; /* that weights are converted to when loaded ("bf16", "fp8") */

    const char *device_kind;      /* "cuda" (NULL too), "rocm", "vulkan", "metal" */
    const uint64_t *device_bytes; /* of each device; none: the model runs on the CPU */
    size_t n_devices;
    int sizes_are_sought; /* device_bytes are what devices must have, the size of no card: none is
                             named after them. Set in the estimate of MT_GOAL_SMALLEST_DEVICE */
    uint64_t host_bytes;  /* 0: not known */
    const uint64_t *device_used_bytes;          /* by other processes, n_devices of them, or NULL */
    const struct mt_device_known *device_known; /* n_devices of them, or NULL */
    uint64_t host_used_bytes;
    uint64_t context_bytes; /* that the driver's context has of each device, where it is known; 0:
                               what was learnt, or is expected as a rule */

    const struct mt_residue *residues;
    size_t n_residues;
};

/* What is sought where the settings leave it open. */
enum mt_goal {
    MT_GOAL_CONTEXT,        /* the most tokens of context, up to what the model was trained for */
    MT_GOAL_SEQUENCES,      /* the most sequences at a time, each of context_tokens / sequences */
    MT_GOAL_BATCH,          /* the largest ubatch, up to the context; batched_tokens of an engine
                               that takes a budget */
    MT_GOAL_SMALLEST_DEVICE /* the least bytes of each device, of n_devices equal ones */
};

/* The name of the engine at `index` ("llama.cpp"), NULL past the last. Borrowed, static. */
const char *mt_engine_name_at(size_t index);

#ifdef __cplusplus
}
#endif
#endif
