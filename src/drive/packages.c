/* SPDX-License-Identifier: MIT */
/* The drivers of engines that are Python packages. Our program for each does the work and reports
 * events. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "profile.h"
#include "program_events.h"

static int check_transformers(const struct mt_profile_settings *settings, struct mt_error *error)
{
    if (settings->kv_type)
        return mt_profile_refuse(error, "transformers keeps its cache in the type of the weights, "
                                        "so --kv-type has no meaning for it");
    if (settings->context_tokens)
        return mt_profile_refuse(error, "transformers lets its cache grow with the sequence, so "
                                        "--context has no meaning for it");
    if (settings->device_map && settings->tensor_parallel > 1)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "give either --device-map or --tensor-parallel, not both");
    return MT_OK;
}

static int check_server(const struct mt_profile_settings *settings, struct mt_error *error)
{
    static const char *const types[] = {"f16", "bf16", "fp8"};
    int is_known = !settings->kv_type;
    for (size_t i = 0; !is_known && i < sizeof types / sizeof *types; i++)
        is_known = strcmp(settings->kv_type, types[i]) == 0;
    if (!is_known)
        return mt_profile_refuse(error, "vLLM and SGLang have KV caches of f16, bf16 or fp8, so "
                                        "this --kv-type has no meaning for them");
    if (settings->device_map)
        return mt_profile_refuse(error, "vLLM and SGLang place a model by themselves, so "
                                        "--device-map has no meaning for them (--tensor-parallel "
                                        "does)");
    if (settings->threads)
        return mt_profile_refuse(error, "vLLM and SGLang compute on devices, so --threads has no "
                                        "meaning for them");
    return MT_OK;
}

static int set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value ? value : json_null()) == 0;
}

/* NULL is null; a text that is not UTF-8 is an error. */
static int set_text(json_t *object, const char *key, const char *text)
{
    json_t *value = text ? json_string(text) : json_null();
    return value && json_object_set_new(object, key, value) == 0;
}

static int set_count(json_t *object, const char *key, uint64_t count)
{
    return set(object, key, json_integer((json_int_t)count));
}

static char *settings_json(const struct mt_profile_settings *settings)
{
    json_t *json = json_object();
    int is_whole = set_text(json, "model", settings->model_path) &&
                   set_text(json, "prompt", settings->prompt) &&
                   set_text(json, "kv_type", settings->kv_type) &&
                   set_text(json, "dtype", settings->dtype) &&
                   set_text(json, "device_map", settings->device_map) &&
                   set_count(json, "prompt_tokens", settings->prompt_tokens) &&
                   set_count(json, "max_tokens", settings->max_tokens) &&
                   set_count(json, "batch_size", settings->batch_size) &&
                   set_count(json, "context", settings->context_tokens) &&
                   set_count(json, "threads", settings->threads) &&
                   set_count(json, "tensor_parallel", settings->tensor_parallel) &&
                   set_count(json, "repeats", settings->repeats) &&
                   set(json, "pretended", json_boolean(settings->is_pretended));
    char *text = is_whole ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

static int command(struct mt_profile_job *job, struct mt_profile_command *words,
                   struct mt_error *error)
{
    return mt_profile_script_command(job, words, settings_json(job->settings), error);
}

#define PACKAGE(name_, cached_as_, check_)                                                         \
    const struct mt_profile_driver mt_profile_##name_ = {                                          \
        .name = #name_,                                                                            \
        .package = #name_,                                                                         \
        .cached_as = cached_as_,                                                                   \
        .script = "profile_" #name_ ".py",                                                         \
        .check = check_,                                                                           \
        .command = command,                                                                        \
        .take_line = mt_profile_take_event,                                                        \
    }

PACKAGE(transformers, "torch", check_transformers);
PACKAGE(vllm, NULL, check_server);
PACKAGE(sglang, NULL, check_server);
