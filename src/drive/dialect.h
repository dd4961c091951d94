/* SPDX-License-Identifier: MIT */
/* How the programs of an engine spell their flags, and the words that start them: the keys
 * "programs" and "flags" of the engines' tables. Knows nothing of what flags do. */
#ifndef DRIVE_DIALECT_H
#define DRIVE_DIALECT_H

#include <stddef.h>

/* What a flag is about, by its name in the tables. */
#define MT_DRIVE_FLAG_LIST(X)                                                                      \
    X(MODEL, "model")                                                                              \
    X(CONTEXT, "context")                                                                          \
    X(GPU_LAYERS, "gpu_layers")                                                                    \
    X(KV_TYPE_K, "kv_type_k")                                                                      \
    X(KV_TYPE_V, "kv_type_v")                                                                      \
    X(FLASH_ATTENTION, "flash_attention")                                                          \
    X(BATCH, "batch")                                                                              \
    X(UBATCH, "ubatch")                                                                            \
    X(SEQUENCES, "sequences")                                                                      \
    X(CPU_EXPERTS, "cpu_experts")                                                                  \
    X(ALL_CPU_EXPERTS, "all_cpu_experts")                                                          \
    X(OVERRIDE_TENSOR, "override_tensor")                                                          \
    X(NO_KV_OFFLOAD, "no_kv_offload")                                                              \
    X(DEVICES, "devices")                                                                          \
    X(DRAFT_MODEL, "draft_model")                                                                  \
    X(FIT_TARGET, "fit_target")                                                                    \
    X(UNIFIED_KV, "unified_kv")                                                                    \
    X(SPLIT, "split")                                                                              \
    X(THREADS, "threads")                                                                          \
    X(CACHE_RAM, "cache_ram")                                                                      \
    X(SLOT_SAVE_PATH, "slot_save_path")                                                            \
    X(EMBEDDING, "embedding")                                                                      \
    X(RERANK, "rerank")                                                                            \
    X(HOST, "host")                                                                                \
    X(PORT, "port")                                                                                \
    X(API_PREFIX, "api_prefix")                                                                    \
    X(API_KEY, "api_key")                                                                          \
    X(API_KEY_FILE, "api_key_file")                                                                \
    X(SSL_KEY_FILE, "ssl_key_file")                                                                \
    X(SSL_CERT_FILE, "ssl_cert_file")                                                              \
    X(REUSE_PORT, "reuse_port")                                                                    \
    X(TENSOR_PARALLEL, "tensor_parallel")                                                          \
    X(PIPELINE_PARALLEL, "pipeline_parallel")                                                      \
    X(MEMORY_SHARE, "memory_share")                                                                \
    X(EAGER, "eager")                                                                              \
    X(BATCHED_TOKENS, "batched_tokens")                                                            \
    X(KV_TYPE, "kv_type")                                                                          \
    X(KV_OFFLOAD, "kv_offload")                                                                    \
    X(WEIGHT_TYPE, "weight_type")

enum mt_drive_flag {
#define X(symbol, name) MT_DRIVE_##symbol,
    MT_DRIVE_FLAG_LIST(X)
#undef X
        MT_DRIVE_FLAGS
};

/* Kinds of an engine's programs, by their names in the tables. */
enum mt_drive_program {
    MT_DRIVE_UNKNOWN_PROGRAM,
    MT_DRIVE_SERVER,
    MT_DRIVE_BENCH,
    MT_DRIVE_TOOL,  /* others with the engine's common flags */
    MT_DRIVE_SCRIPT /* our own small program, with settings as JSON behind the model */
};

#define MT_DRIVE_SPELLINGS      4
#define MT_DRIVE_SPELLING_BYTES 40

struct mt_drive_spelling {
    char names[MT_DRIVE_SPELLINGS][MT_DRIVE_SPELLING_BYTES]; /* the first one is written */
    char variable[MT_DRIVE_SPELLING_BYTES];                  /* that gives it too, or "" */
    unsigned char is_known;                                  /* to the program */
    unsigned char is_bare;                                   /* it has no value */
    unsigned char is_many;                                   /* values, up to the next flag */
};

struct mt_drive_dialect {
    const char *engine; /* of mt_engine_name_at() */
    enum mt_drive_program program;
    struct mt_drive_spelling flags[MT_DRIVE_FLAGS];
};

/* The first program in `words`, which end with NULL: which word it begins at. Returns how many
 * words start it; 0 where there is none of a known engine. */
size_t mt_drive_program_find(char *const *words, size_t *index, const char **engine,
                             enum mt_drive_program *program);

/* The flags of an engine's program. Fills the whole of *dialect. */
void mt_drive_dialect_load(const char *engine, enum mt_drive_program program,
                           struct mt_drive_dialect *dialect);

#endif
