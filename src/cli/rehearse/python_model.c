/* SPDX-License-Identifier: MIT */
/* Which Python, which of our small programs, and the settings as JSON. Whether the package is there
 * the program itself finds out. */
#include "cli/rehearse/python_model.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/error.h"
#include "cli/hub_cache.h"
#include "cli/profile/find.h"
#include "cli/rehearse/unseen.h"

#define FAIL(error, code, ...) mt_fail(error, code, MT_NO_OFFSET, "rehearse: " __VA_ARGS__)

/* A package, our program for it, and whether it divides a model by itself over all devices. */
static const struct python_engine {
    const char *name;
    const char *script;
    int is_parallel;
} engines[] = {
    {"vllm", "rehearse_vllm.py", 1},
    {"sglang", "rehearse_sglang.py", 1},
    {"transformers", "rehearse_transformers.py", 0},
};

static const struct python_engine *engine_of(const char *engine)
{
    for (size_t i = 0; engine && i < sizeof engines / sizeof *engines; i++) {
        size_t length = strlen(engines[i].name);
        if (strncmp(engine, engines[i].name, length) == 0 &&
            (!engine[length] || engine[length] == '@'))
            return &engines[i];
    }
    return NULL;
}

int rehearse_is_python_engine(const char *engine)
{
    return engine_of(engine) != NULL;
}

/* Of what was asked for, what the engine has no setting for is llama.cpp's. */
static int check(const struct estimate_options *options, const struct python_engine *engine,
                 struct mt_error *error)
{
    static const struct estimate_options nothing;
    struct estimate_options rest = *options;
    rest.engine = rest.engine_path = rest.weight_type = rest.output = NULL;
    rest.context = rest.sequences = rest.host_bytes = 0;
    rest.devices = nothing.devices;
    rest.explain = rest.format = 0;
    if (engine->is_parallel) {
        rest.memory_share = 0;
        rest.batched_tokens = rest.tensor_parallel = rest.pipeline_parallel = 0;
        rest.eager = 0;
        rest.kv_type = NULL;
    } else {
        rest.no_kv_offload = 0;
    }
    if (memcmp(&rest, &nothing, sizeof rest) == 0)
        return 0;
    return FAIL(error, MT_EARG,
                "%s has no such setting: of --context, --sequences, --weight-type%s it can be told",
                engine->name,
                engine->is_parallel ? ", --kv-type, --memory-share, --batched-tokens, "
                                      "--tensor-parallel, --pipeline-parallel, --eager"
                                    : ", --no-kv-offload");
}

static int is_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat status;
    return snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_MAX &&
           stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* What a name of a hub has in the local cache: a folder, which is there of each revision. */
static int find_in_cache(const char *name, char *const *environment, char path[PATH_MAX])
{
    char revised[PATH_MAX];
    return (snprintf(revised, sizeof revised, "%s@main", name) < PATH_MAX &&
            cli_hub_cache_find(revised, environment, path, PATH_MAX)) ||
           cli_hub_cache_find(name, environment, path, PATH_MAX);
}

/* A folder with a config.json, or that file itself, which a hub's cache links to elsewhere. */
static int find_model(const char *model, char *const *environment, char path[PATH_MAX],
                      struct mt_error *error)
{
    char near[PATH_MAX];
    int is_there = snprintf(near, sizeof near, "%s", model) < PATH_MAX && access(near, F_OK) == 0;
    if (!is_there && !find_in_cache(model, environment, near))
        return FAIL(error, MT_ENOTFOUND,
                    "no folder %s, nor a model of that name in the hub's cache; name a folder "
                    "with a model's config.json",
                    model);
    char *slash = strrchr(near, '/');
    const char *base = slash ? slash + 1 : near;
    if (strcmp(base, "config.json") == 0)
        snprintf(near + (base - near), 2, ".");
    if (!is_file(near, "config.json") || !realpath(near, path))
        return FAIL(error, MT_EUNSUPPORTED,
                    "%s has no config.json, which this engine wants of a model; of a GGUF file, "
                    "rehearse --engine llama.cpp",
                    model);
    return 0;
}

/* --engine-path: a Python, or the folder of a virtual environment; else the environment that is
 * active, else the first in PATH. */
static int find_python(const char *named, char *const *environment, char path[PATH_MAX],
                       struct mt_error *error)
{
    const char *active = mt_environment_get(environment, "VIRTUAL_ENV");
    const char *base = named ? named : active;
    if (base && *base) {
        struct stat status;
        int is_folder = stat(base, &status) == 0 && S_ISDIR(status.st_mode);
        if (snprintf(path, PATH_MAX, "%s%s", base, is_folder ? "/bin/python" : "") < PATH_MAX &&
            access(path, X_OK) == 0)
            return 0;
    }
    if (named)
        return FAIL(error, MT_ENOTFOUND,
                    "--engine-path: %s is no Python, nor a virtual environment with one", named);
    if (rehearse_find_in_path("python3", environment, path) ||
        rehearse_find_in_path("python", environment, path))
        return 0;
    return FAIL(error, MT_ENOTFOUND,
                "no python3 in PATH; name one with the engine in it by --engine-path");
}

static void put_text(json_t *settings, const char *key, const char *value)
{
    if (value)
        json_object_set_new(settings, key, json_string(value));
}

static void put_number(json_t *settings, const char *key, uint64_t value)
{
    if (value)
        json_object_set_new(settings, key, json_integer((json_int_t)value));
}

static char *make_settings(const struct estimate_options *options,
                           const struct python_engine *engine, size_t n_devices)
{
    json_t *settings = json_object();
    const char *version = strchr(options->engine, '@');
    uint64_t pipeline = options->pipeline_parallel ? options->pipeline_parallel : 1;
    uint64_t tensor = options->tensor_parallel;
    if (!tensor && n_devices / pipeline > 1)
        tensor = n_devices / pipeline;
    put_text(settings, "version", version ? version + 1 : NULL);
    put_number(settings, "context_tokens", options->context);
    put_number(settings, "sequences", options->sequences);
    put_text(settings, "weight_type", options->weight_type);
    if (engine->is_parallel) {
        put_text(settings, "kv_type", options->kv_type);
        put_number(settings, "batched_tokens", options->batched_tokens);
        put_number(settings, "tensor_parallel", tensor);
        put_number(settings, "pipeline_parallel", options->pipeline_parallel);
        put_number(settings, "eager", (uint64_t)options->eager);
        if (options->memory_share > 0)
            json_object_set_new(settings, "memory_share", json_real(options->memory_share));
    } else {
        put_number(settings, "n_devices", n_devices);
        put_number(settings, "kv_offload", (uint64_t)options->no_kv_offload);
    }
    char *text = json_dumps(settings, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(settings);
    return text;
}

int rehearse_python_command_init(struct rehearse_python_command *command,
                                 const struct estimate_options *options, const char *model,
                                 size_t n_devices, char *const *environment, struct mt_error *error)
{
    const struct python_engine *engine = engine_of(options->engine);
    char folder[PATH_MAX];
    *command = (struct rehearse_python_command){.settings = NULL};
    int result = check(options, engine, error);
    if (!result && !n_devices)
        result = FAIL(error, MT_EARG,
                      "%s is rehearsed on GPUs; name them, as --device 24GiB or --device H100-80GB",
                      engine->name);
    if (!result)
        result = find_model(model, environment, command->model, error);
    if (!result)
        result = find_python(options->engine_path, environment, command->python, error);
    if (result)
        return result;
    profile_scripts_folder(folder, sizeof folder);
    if (snprintf(command->script, sizeof command->script, "%s/%s", folder, engine->script) >=
            PATH_MAX ||
        access(command->script, R_OK) < 0)
        return FAIL(error, MT_ENOTFOUND,
                    "%s, which belongs to memtally, is not in %s; is memtally installed whole?",
                    engine->script, folder);
    command->settings = make_settings(options, engine, n_devices);
    if (!command->settings)
        return FAIL(error, MT_ENOMEM, "out of memory");
    char *const words[] = {command->python, command->script, command->model, command->settings,
                           NULL};
    memcpy(command->argv, words, sizeof words);
    return 0;
}

void rehearse_python_command_finish(struct rehearse_python_command *command)
{
    free(command->settings);
    command->settings = NULL;
}
