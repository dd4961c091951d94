/* SPDX-License-Identifier: MIT */
/* Putting an engine's command line together, and what its context must hold. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "engines.h"
#include "profile.h"

static void add_owned(struct mt_profile_command *command, char *word)
{
    if (!word || command->n_words == MT_PROFILE_WORDS_MAX) {
        command->failed = 1;
        free(word);
        return;
    }
    command->words[command->n_words++] = word;
}

void mt_profile_command_add(struct mt_profile_command *command, const char *word)
{
    add_owned(command, strdup(word));
}

void mt_profile_command_addf(struct mt_profile_command *command, const char *format, ...)
{
    char *word = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&word, format, arguments) < 0)
        word = NULL;
    va_end(arguments);
    add_owned(command, word);
}

static void put_value(struct mt_strbuf *out, char letter, const struct mt_profile_value *values)
{
    for (; values->letter; values++) {
        if (values->letter != letter)
            continue;
        if (values->text)
            mt_strbuf_puts(out, values->text);
        else
            mt_strbuf_printf(out, "%" PRIu64, values->number);
    }
}

void mt_profile_fill(struct mt_strbuf *out, const char *line, const struct mt_profile_value *values)
{
    for (const char *at = line; *at; at++)
        if (at[0] == '%' && at[1])
            put_value(out, *++at, values);
        else
            mt_strbuf_append(out, at, 1);
}

void mt_profile_command_put(struct mt_profile_command *command, const char *engine, const char *key,
                            const struct mt_profile_value *values)
{
    char line[MT_DRIVE_ENGINE_TEXT];
    char *rest = line;
    mt_drive_engine_text(engine, key, line);
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        struct mt_strbuf text = {0};
        mt_profile_fill(&text, word, values);
        if (*word)
            mt_profile_command_add(command, mt_strbuf_text(&text));
        mt_strbuf_finish(&text);
    }
}

void mt_profile_command_flag(struct mt_profile_command *command, const char *engine,
                             const char *flag, const char *value)
{
    char name[MT_DRIVE_ENGINE_TEXT];
    mt_profile_command_add(command, mt_drive_engine_word(engine, "flags", flag, name));
    mt_profile_command_add(command, value);
}

void mt_profile_command_common(struct mt_profile_command *command,
                               const struct mt_profile_settings *settings)
{
    char threads[24];
    snprintf(threads, sizeof threads, "%" PRIu64, settings->threads);
    if (settings->threads)
        mt_profile_command_flag(command, NULL, "threads", threads);
    if (!settings->kv_type)
        return;
    mt_profile_command_flag(command, NULL, "kv_type_k", settings->kv_type);
    mt_profile_command_flag(command, NULL, "kv_type_v", settings->kv_type);
}

void mt_profile_command_finish(struct mt_profile_command *command)
{
    for (size_t i = 0; i < command->n_words; i++)
        free(command->words[i]);
    *command = (struct mt_profile_command){0};
}

int mt_profile_refuse(struct mt_error *error, const char *why)
{
    return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s; leave it out or choose another --engine",
                   why);
}

int mt_profile_refuse_package_settings(const struct mt_profile_settings *settings,
                                       struct mt_error *error)
{
    if (settings->dtype)
        return mt_profile_refuse(error, "llama.cpp takes weights as the model file has them, so "
                                        "--dtype has no meaning for it");
    if (settings->device_map || settings->tensor_parallel || settings->is_pretended)
        return mt_profile_refuse(error, "memtally profiles llama.cpp on the CPU, so --device-map, "
                                        "--tensor-parallel and --on have no meaning for it");
    return MT_OK;
}

int mt_profile_context_tokens(const struct mt_profile_settings *settings, uint64_t prompt_tokens,
                              uint64_t *context_tokens, struct mt_error *error)
{
    uint64_t needed = prompt_tokens + settings->max_tokens;
    if (settings->context_tokens && settings->context_tokens < needed)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "prompt and output take %" PRIu64 " tokens and --context is %" PRIu64
                       "; raise it, or lower --max-tokens or the prompt",
                       needed, settings->context_tokens);
    if (settings->context_tokens)
        *context_tokens = settings->context_tokens;
    else if (needed <= MT_PROFILE_DEFAULT_CONTEXT_TOKENS)
        *context_tokens = MT_PROFILE_DEFAULT_CONTEXT_TOKENS;
    else
        *context_tokens = (needed + 255) / 256 * 256;
    return MT_OK;
}
