/* SPDX-License-Identifier: MIT */
/* The driver of node-llama-cpp. Its program in engines/ does the work and reports events. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile.h"
#include "program_events.h"

static json_t *count_or_null(uint64_t count)
{
    return count ? json_integer((json_int_t)count) : json_null();
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static char *settings_json(const struct mt_profile_job *job)
{
    const struct mt_profile_settings *settings = job->settings;
    json_t *json = json_pack(
        "{s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I}", "modules", job->engine->modules,
        "model", settings->model_path, "prompt", text_or_null(settings->prompt), "prompt_tokens",
        (json_int_t)settings->prompt_tokens, "max_tokens", (json_int_t)settings->max_tokens,
        "batch_size", (json_int_t)settings->batch_size, "context",
        (json_int_t)settings->context_tokens, "kv_type", text_or_null(settings->kv_type),
        "gpu_layers", text_or_null(settings->gpu_layers), "threads",
        count_or_null(settings->threads), "repeats", (json_int_t)settings->repeats);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

static int check(const struct mt_profile_settings *settings, struct mt_error *error)
{
    return mt_profile_refuse_package_settings(settings, error);
}

static int command(struct mt_profile_job *job, struct mt_profile_command *words,
                   struct mt_error *error)
{
    return mt_profile_script_command(job, words, settings_json(job), error);
}

const struct mt_profile_driver mt_profile_node_llama_cpp = {
    .name = "node-llama-cpp",
    .check = check,
    .command = command,
    .take_line = mt_profile_take_event,
};
