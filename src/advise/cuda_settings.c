/* SPDX-License-Identifier: MIT */
/* Reading and changing settings of engines on CUDA by the table of their spellings. */
#include "cuda_settings.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct spelling {
    enum mt_advise_cuda_engine engine;
    enum mt_advise_setting setting;
    enum mt_drive_flag flag;
    const char *name;
    int has_value;
    const char *option;
    const char *key;
} spellings[] = {
#define SETTING(engine, setting, flag, other, has_value, option, key)                              \
    {MT_DRIVE_##engine,                                                                            \
     MT_ADVISE_SET_##setting,                                                                      \
     MT_DRIVE_##engine##_##setting,                                                                \
     flag,                                                                                         \
     has_value,                                                                                    \
     option,                                                                                       \
     key},
#include "drive/settings.def"
#undef SETTING
};

enum mt_advise_cuda_engine mt_advise_cuda_engine_of(const struct mt_drive_command *command)
{
    switch (command->program) {
    case MT_DRIVE_VLLM_SERVER:
    case MT_DRIVE_VLLM_MODEL:
        return MT_DRIVE_VLLM;
    case MT_DRIVE_SGLANG_SERVER:
    case MT_DRIVE_SGLANG_MODEL:
        return MT_DRIVE_SGLANG;
    case MT_DRIVE_TRANSFORMERS_MODEL:
        return MT_DRIVE_TRANSFORMERS;
    default:
        return MT_ADVISE_NO_CUDA_ENGINE;
    }
}

int mt_advise_has_options(const struct mt_drive_command *command)
{
    return command->program == MT_DRIVE_VLLM_MODEL || command->program == MT_DRIVE_SGLANG_MODEL ||
           command->program == MT_DRIVE_TRANSFORMERS_MODEL;
}

static const struct spelling *spelling_of(const struct mt_drive_command *command,
                                          enum mt_advise_setting setting)
{
    enum mt_advise_cuda_engine engine = mt_advise_cuda_engine_of(command);
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (spellings[i].engine == engine && spellings[i].setting == setting)
            return &spellings[i];
    return NULL;
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
    const struct spelling *spelling = spelling_of(command, setting);
    if (!spelling)
        return 0;
    if (mt_advise_has_options(command))
        return get_from_json(command->words[json_index(command)], spelling->key, value);
    const char *given = mt_drive_flag_value(command, NULL, spelling->flag);
    if (!given)
        return 0;
    snprintf(value, MT_ADVISE_SETTING_BYTES, "%.31s", given);
    return 1;
}

void mt_advise_setting_set(struct mt_drive_command *command, enum mt_advise_setting setting,
                           const char *value)
{
    const struct spelling *spelling = spelling_of(command, setting);
    if (!spelling || command->failed)
        return;
    if (mt_advise_has_options(command))
        set_in_json(command, spelling->key, value);
    else
        mt_drive_flag_set(command, spelling->flag, value);
}

void mt_advise_setting_spell(const struct mt_drive_command *command, enum mt_advise_setting setting,
                             const char *value, char flag[64], char option[64])
{
    const struct spelling *spelling = spelling_of(command, setting);
    flag[0] = option[0] = '\0';
    if (!spelling)
        return;
    int is_flag = strncmp(spelling->name, "--", 2) == 0;
    const char *name = spelling->name;
    if (!mt_advise_has_options(command))
        name = mt_drive_flag_spelling(command, spelling->flag);
    snprintf(flag, 64, "%s%s%s", name,
             !spelling->has_value ? ""
             : is_flag            ? " "
                                  : "=",
             spelling->has_value ? value : "");
    if (mt_advise_has_options(command) && spelling->option)
        snprintf(option, 64, "%s%s%s", spelling->option, spelling->has_value ? " " : "",
                 spelling->has_value ? value : "");
}
