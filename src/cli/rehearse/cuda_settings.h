/* SPDX-License-Identifier: MIT */
/* Settings of an engine on CUDA in a command line: flags of its server, or the JSON that our own
 * small program is given. Knows how they are spelled, not what they do. */
#ifndef CLI_REHEARSE_CUDA_SETTINGS_H
#define CLI_REHEARSE_CUDA_SETTINGS_H

#include "cli/rehearse/flags.h"

#define REHEARSE_SETTING_BYTES 32

enum rehearse_cuda_engine {
    REHEARSE_NO_CUDA_ENGINE,
    REHEARSE_VLLM,
    REHEARSE_SGLANG,
    REHEARSE_TRANSFORMERS
};

enum rehearse_setting {
    REHEARSE_SET_TENSOR_PARALLEL,
    REHEARSE_SET_PIPELINE_PARALLEL,
    REHEARSE_SET_SHARE,
    REHEARSE_SET_EAGER,
    REHEARSE_SET_BATCHED_TOKENS,
    REHEARSE_SET_KV_OFFLOAD,
    REHEARSE_SET_WEIGHT_TYPE,
    REHEARSE_SET_KV_TYPE,
    REHEARSE_SET_SEQUENCES,
    REHEARSE_SET_CONTEXT,
    REHEARSE_SETTINGS
};

enum rehearse_cuda_engine rehearse_cuda_engine_of(const struct rehearse_command *command);

/* Whether memtally's own options make this command line. */
int rehearse_has_options(const struct rehearse_command *command);

/* The value that a setting is given, into `value`; returns 0 where it is given none. One without a
 * value of its own is "1". */
int rehearse_setting_get(const struct rehearse_command *command, enum rehearse_setting setting,
                         char value[REHEARSE_SETTING_BYTES]);

/* Gives a setting a value. Memory that cannot be had is remembered in the command line. */
void rehearse_setting_set(struct rehearse_command *command, enum rehearse_setting setting,
                          const char *value);

/* The setting as the engine spells it ("--max-model-len 4096", "max_length=4096") and, where there
 * is such a one, as memtally's option, else "". */
void rehearse_setting_spell(const struct rehearse_command *command, enum rehearse_setting setting,
                            const char *value, char flag[64], char option[64]);

#endif
