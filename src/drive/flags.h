/* SPDX-License-Identifier: MIT */
/* Flags of llama.cpp's programs and of Python's servers in a command line of the user's: finding,
 * changing, dropping them.
 *
 * Knows how flags are spelled, not what they do. Memory that cannot be had is remembered in the
 * command line's `failed`. */
#ifndef DRIVE_FLAGS_H
#define DRIVE_FLAGS_H

#include <stddef.h>
#include <stdint.h>

enum mt_drive_flag {
    MT_DRIVE_MODEL,
    MT_DRIVE_CONTEXT,
    MT_DRIVE_GPU_LAYERS,
    MT_DRIVE_KV_TYPE_K,
    MT_DRIVE_KV_TYPE_V,
    MT_DRIVE_FLASH_ATTENTION,
    MT_DRIVE_BATCH,
    MT_DRIVE_UBATCH,
    MT_DRIVE_SEQUENCES,
    MT_DRIVE_CPU_EXPERTS,
    MT_DRIVE_ALL_CPU_EXPERTS,
    MT_DRIVE_OVERRIDE_TENSOR,
    MT_DRIVE_NO_KV_OFFLOAD,
    MT_DRIVE_DEVICES,
    MT_DRIVE_DRAFT_MODEL,
    MT_DRIVE_FIT_TARGET,
    MT_DRIVE_CACHE_RAM,
    MT_DRIVE_SLOT_SAVE_PATH,
    MT_DRIVE_EMBEDDING,
    MT_DRIVE_RERANK,
    MT_DRIVE_HOST,
    MT_DRIVE_PORT,
    MT_DRIVE_API_PREFIX,
    MT_DRIVE_API_KEY,
    MT_DRIVE_API_KEY_FILE,
    MT_DRIVE_SSL_KEY_FILE,
    MT_DRIVE_SSL_CERT_FILE,
    MT_DRIVE_REUSE_PORT,
#define SETTING(engine, setting, ...) MT_DRIVE_##engine##_##setting,
#include "settings.def"
#undef SETTING
    MT_DRIVE_FLAGS
};

/* Programs whose flags are known. */
enum mt_drive_program {
    MT_DRIVE_UNKNOWN_PROGRAM,
    MT_DRIVE_LLAMA,        /* llama-cli, llama-fit-params and others with the common flags */
    MT_DRIVE_LLAMA_SERVER, /* the same with those of a server */
    MT_DRIVE_LLAMA_BENCH,  /* with flags of its own */
    MT_DRIVE_VLLM_SERVER,
    MT_DRIVE_SGLANG_SERVER,
    MT_DRIVE_VLLM_MODEL, /* our own small programs, with settings as JSON */
    MT_DRIVE_SGLANG_MODEL,
    MT_DRIVE_TRANSFORMERS_MODEL
};

/* A command line of one's own; `words` ends with NULL. */
struct mt_drive_command {
    char **words;
    size_t n_words;
    size_t program_index; /* of the program's name: 0, or later behind env, nice and the like */
    enum mt_drive_program program;
    int failed;
};

/* Copies `argv`, which ends with NULL, and finds the program in it. The caller frees the copy with
 * mt_drive_command_finish(). */
void mt_drive_command_copy(char *const *argv, struct mt_drive_command *command);
void mt_drive_command_finish(struct mt_drive_command *command);

/* Whether it is a program of llama.cpp. */
int mt_drive_is_llama(const struct mt_drive_command *command);

/* Whether it is vLLM's or SGLang's server. */
int mt_drive_is_python_server(const struct mt_drive_command *command);

/* Whether the program knows the flag at all. */
int mt_drive_flag_is_known(const struct mt_drive_command *command, enum mt_drive_flag flag);

/* The flag's value: the last one of the command line, else that of its variable in `environment`
 * (which ends with NULL, or is NULL), else NULL. A flag without a value is "1". Borrowed. */
const char *mt_drive_flag_value(const struct mt_drive_command *command, char *const *environment,
                                enum mt_drive_flag flag);

/* Gives the flag a value, in the user's spelling where it stands there, else by its short name at
 * the end. */
void mt_drive_flag_set(struct mt_drive_command *command, enum mt_drive_flag flag,
                       const char *value);

/* Takes the flag out, wherever it stands. */
void mt_drive_flag_drop(struct mt_drive_command *command, enum mt_drive_flag flag);

/* How the user spells the flag, or its short name: "-c", "--ctx-size". Borrowed. */
const char *mt_drive_flag_spelling(const struct mt_drive_command *command, enum mt_drive_flag flag);

/* A whole number in `text`; `otherwise` where it is NULL, "auto", a list or anything else. */
uint64_t mt_drive_flag_number(const char *text, uint64_t otherwise);

#endif
