/* SPDX-License-Identifier: MIT */
/* Settings of an engine on CUDA in a command line: flags of its server, or the JSON that our own
 * small program is given. Knows how they are spelled, not what they do. */
#ifndef ADVISE_CUDA_SETTINGS_H
#define ADVISE_CUDA_SETTINGS_H

#include "drive/flags.h"

#define MT_ADVISE_SETTING_BYTES 32

enum mt_advise_setting {
    MT_ADVISE_SET_TENSOR_PARALLEL,
    MT_ADVISE_SET_PIPELINE_PARALLEL,
    MT_ADVISE_SET_SHARE,
    MT_ADVISE_SET_EAGER,
    MT_ADVISE_SET_BATCHED_TOKENS,
    MT_ADVISE_SET_KV_OFFLOAD,
    MT_ADVISE_SET_WEIGHT_TYPE,
    MT_ADVISE_SET_KV_TYPE,
    MT_ADVISE_SET_SEQUENCES,
    MT_ADVISE_SET_CONTEXT,
    MT_ADVISE_SETTINGS
};

/* The engine whose settings can be turned, by the changes that its table has; NULL for another. */
const char *mt_advise_cuda_engine_of(const struct mt_drive_command *command);

/* Whether memtally's own options make this command line. */
int mt_advise_has_options(const struct mt_drive_command *command);

/* The value that a setting is given, into `value`; returns 0 where it is given none. One without a
 * value of its own is "1". */
int mt_advise_setting_get(const struct mt_drive_command *command, enum mt_advise_setting setting,
                          char value[MT_ADVISE_SETTING_BYTES]);

/* Gives a setting a value. Memory that cannot be had is remembered in the command line. */
void mt_advise_setting_set(struct mt_drive_command *command, enum mt_advise_setting setting,
                           const char *value);

/* The setting as the engine spells it ("--max-model-len 4096", "max_length=4096") and, where there
 * is such a one, as memtally's option, else "". */
void mt_advise_setting_spell(const struct mt_drive_command *command, enum mt_advise_setting setting,
                             const char *value, char flag[64], char option[64]);

#endif
