/* SPDX-License-Identifier: MIT */
/* Reading and changing settings of engines on CUDA as their tables spell them. */
#include "cuda_settings.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drive/engines.h"

/* A setting by its flag in the tables, memtally's option, and its key among the settings of our own
 * small program. */
static const struct setting {
    enum mt_drive_flag flag;
    const char *option;
    const char *key;
} known[MT_ADVISE_SETTINGS] = {
    [MT_ADVISE_SET_TENSOR_PARALLEL] = {MT_DRIVE_TENSOR_PARALLEL, "--tensor-parallel",
                                       "tensor_parallel"},
    [MT_ADVISE_SET_PIPELINE_PARALLEL] = {MT_DRIVE_PIPELINE_PARALLEL, "--pipeline-parallel",
                                         "pipeline_parallel"},
    [MT_ADVISE_SET_SHARE] = {MT_DRIVE_MEMORY_SHARE, "--memory-share", "memory_share"},
    [MT_ADVISE_SET_EAGER] = {MT_DRIVE_EAGER, "--eager", "eager"},
    [MT_ADVISE_SET_BATCHED_TOKENS] = {MT_DRIVE_BATCHED_TOKENS, "--batched-tokens",
                                      "batched_tokens"},
    [MT_ADVISE_SET_KV_OFFLOAD] = {MT_DRIVE_KV_OFFLOAD, "--no-kv-offload", "kv_offload"},
    [MT_ADVISE_SET_WEIGHT_TYPE] = {MT_DRIVE_WEIGHT_TYPE, "--weight-type", "weight_type"},
    [MT_ADVISE_SET_KV_TYPE] = {MT_DRIVE_KV_TYPE, "--kv-type", "kv_type"},
    [MT_ADVISE_SET_SEQUENCES] = {MT_DRIVE_SEQUENCES, "--sequences", "sequences"},
    [MT_ADVISE_SET_CONTEXT] = {MT_DRIVE_CONTEXT, "--context", "context_tokens"},
};

const char *mt_advise_cuda_engine_of(const struct mt_drive_command *command)
{
    char first[MT_DRIVE_ENGINE_TEXT];
    int can_be_turned =
        command->engine && *mt_drive_engine_text(command->engine, "change.1", first);
    return can_be_turned ? command->engine : NULL;
}

int mt_advise_has_options(const struct mt_drive_command *command)
{
    return command->program == MT_DRIVE_SCRIPT;
}

/* How the engine spells a setting, or NULL. */
static const struct mt_drive_spelling *spelling_of(const struct mt_drive_command *command,
                                                   enum mt_advise_setting setting)
{
    const struct mt_drive_spelling *spelling =
        command->dialect ? &command->dialect->flags[known[setting].flag] : NULL;
    return spelling && *spelling->names[0] ? spelling : NULL;
}

/* Our own program's settings stand behind the model. */
static size_t json_index(const struct mt_drive_command *command)
{
    return command->program_index + 2;
}

static int get_from_json(const char *text, const char *key, char value[MT_ADVISE_SETTING_BYTES])
{
    json_t *settings = json_loads(text, 0, NULL);
    const json_t *item = json_object_get(settings, key);
    int found = item != NULL;
    if (json_is_string(item))
        snprintf(value, MT_ADVISE_SETTING_BYTES, "%.31s", json_string_value(item));
    else if (json_is_integer(item))
        snprintf(value, MT_ADVISE_SETTING_BYTES, "%lld", (long long)json_integer_value(item));
    else if (json_is_real(item))
        snprintf(value, MT_ADVISE_SETTING_BYTES, "%.6g", json_real_value(item));
    else
        found = 0;
    json_decref(settings);
    return found;
}

/* Its spelling shows whether a value is a whole number, a fraction or a word. */
static json_t *as_json(const char *value)
{
    char *end = NULL;
    long long number = strtoll(value, &end, 10);
    if (*value && !*end)
        return json_integer(number);
    double real = strtod(value, &end);
    return *value && !*end ? json_real(real) : json_string(value);
}

static void set_in_json(struct mt_drive_command *command, const char *key, const char *value)
{
    size_t index = json_index(command);
    json_t *settings = json_loads(command->words[index], 0, NULL);
    if (settings)
        json_object_set_new(settings, key, as_json(value));
    char *text = settings ? json_dumps(settings, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(settings);
    if (!text) {
        command->failed = 1;
        return;
    }
    free(command->words[index]);
    command->words[index] = text;
}

int mt_advise_setting_get(const struct mt_drive_command *command, enum mt_advise_setting setting,
                          char value[MT_ADVISE_SETTING_BYTES])
{
    if (!spelling_of(command, setting))
        return 0;
    if (mt_advise_has_options(command))
        return get_from_json(command->words[json_index(command)], known[setting].key, value);
    const char *given = mt_drive_flag_value(command, NULL, known[setting].flag);
    if (!given)
        return 0;
    snprintf(value, MT_ADVISE_SETTING_BYTES, "%.31s", given);
    return 1;
}

void mt_advise_setting_set(struct mt_drive_command *command, enum mt_advise_setting setting,
                           const char *value)
{
    if (!spelling_of(command, setting) || command->failed)
        return;
    if (mt_advise_has_options(command))
        set_in_json(command, known[setting].key, value);
    else
        mt_drive_flag_set(command, known[setting].flag, value);
}

void mt_advise_setting_spell(const struct mt_drive_command *command, enum mt_advise_setting setting,
                             const char *value, char flag[64], char option[64])
{
    const struct mt_drive_spelling *spelling = spelling_of(command, setting);
    flag[0] = option[0] = '\0';
    if (!spelling)
        return;
    const char *name = mt_drive_flag_spelling(command, known[setting].flag);
    const char *joint = spelling->is_bare ? "" : strncmp(name, "--", 2) == 0 ? " " : "=";
    const char *shown = spelling->is_bare ? "" : value;
    snprintf(flag, 64, "%s%s%s", name, joint, shown);
    if (mt_advise_has_options(command))
        snprintf(option, 64, "%s%s%s", known[setting].option, *shown ? " " : "", shown);
}
