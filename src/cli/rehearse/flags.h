/* SPDX-License-Identifier: MIT */
/* Flags of llama.cpp's programs and of Python's servers in a command line of the user's: finding,
 * changing, dropping them.
 *
 * Knows how flags are spelled, not what they do. Memory that cannot be had is remembered in the
 * command line's `failed`. */
#ifndef CLI_REHEARSE_FLAGS_H
#define CLI_REHEARSE_FLAGS_H

#include <stddef.h>
#include <stdint.h>

enum rehearse_flag {
    REHEARSE_MODEL,
    REHEARSE_CONTEXT,
    REHEARSE_GPU_LAYERS,
    REHEARSE_KV_TYPE_K,
    REHEARSE_KV_TYPE_V,
    REHEARSE_FLASH_ATTENTION,
    REHEARSE_BATCH,
    REHEARSE_UBATCH,
    REHEARSE_SEQUENCES,
    REHEARSE_CPU_EXPERTS,
    REHEARSE_ALL_CPU_EXPERTS,
    REHEARSE_OVERRIDE_TENSOR,
    REHEARSE_NO_KV_OFFLOAD,
    REHEARSE_DEVICES,
    REHEARSE_DRAFT_MODEL,
    REHEARSE_FIT_TARGET,
    REHEARSE_CACHE_RAM,
    REHEARSE_SLOT_SAVE_PATH,
    REHEARSE_EMBEDDING,
    REHEARSE_RERANK,
    REHEARSE_HOST,
    REHEARSE_PORT,
    REHEARSE_API_PREFIX,
    REHEARSE_API_KEY,
    REHEARSE_API_KEY_FILE,
    REHEARSE_SSL_KEY_FILE,
    REHEARSE_SSL_CERT_FILE,
    REHEARSE_REUSE_PORT,
#define SETTING(engine, setting, ...) REHEARSE_##engine##_##setting,
#include "cli/rehearse/cuda_settings.def"
#undef SETTING
    REHEARSE_FLAGS
};

/* Programs whose flags are known. */
enum rehearse_program {
    REHEARSE_UNKNOWN_PROGRAM,
    REHEARSE_LLAMA,        /* llama-cli, llama-fit-params and others with the common flags */
    REHEARSE_LLAMA_SERVER, /* the same with those of a server */
    REHEARSE_LLAMA_BENCH,  /* with flags of its own */
    REHEARSE_VLLM_SERVER,
    REHEARSE_SGLANG_SERVER,
    REHEARSE_VLLM_MODEL, /* our own small programs, with settings as JSON */
    REHEARSE_SGLANG_MODEL,
    REHEARSE_TRANSFORMERS_MODEL
};

/* A command line of one's own; `words` ends with NULL. */
struct rehearse_command {
    char **words;
    size_t n_words;
    size_t program_index; /* of the program's name: 0, or later behind env, nice and the like */
    enum rehearse_program program;
    int failed;
};

/* Copies `argv`, which ends with NULL, and finds the program in it. The caller frees the copy with
 * rehearse_command_finish(). */
void rehearse_command_copy(char *const *argv, struct rehearse_command *command);
void rehearse_command_finish(struct rehearse_command *command);

/* Whether it is a program of llama.cpp. */
int rehearse_is_llama(const struct rehearse_command *command);

/* Whether it is vLLM's or SGLang's server. */
int rehearse_is_python_server(const struct rehearse_command *command);

/* Whether the program knows the flag at all. */
int rehearse_flag_is_known(const struct rehearse_command *command, enum rehearse_flag flag);

/* The flag's value: the last one of the command line, else that of its variable in `environment`
 * (which ends with NULL, or is NULL), else NULL. A flag without a value is "1". Borrowed. */
const char *rehearse_flag_value(const struct rehearse_command *command, char *const *environment,
                                enum rehearse_flag flag);

/* Gives the flag a value, in the user's spelling where it stands there, else by its short name at
 * the end. */
void rehearse_flag_set(struct rehearse_command *command, enum rehearse_flag flag,
                       const char *value);

/* Takes the flag out, wherever it stands. */
void rehearse_flag_drop(struct rehearse_command *command, enum rehearse_flag flag);

/* How the user spells the flag, or its short name: "-c", "--ctx-size". Borrowed. */
const char *rehearse_flag_spelling(const struct rehearse_command *command, enum rehearse_flag flag);

/* A whole number in `text`; `otherwise` where it is NULL, "auto", a list or anything else. */
uint64_t rehearse_flag_number(const char *text, uint64_t otherwise);

#endif
