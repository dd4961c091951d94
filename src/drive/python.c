/* SPDX-License-Identifier: MIT */
/* Which Python, which of our small programs, and the settings as JSON. Whether the package is there
 * the program itself finds out. */
#include "python.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/settings.h>

#include "base/environment.h"
#include "base/error.h"
#include "engines.h"
#include "find.h"
#include "program_file.h"

#define FAIL(error, code, ...) mt_fail(error, code, MT_NO_OFFSET, "rehearse: " __VA_ARGS__)

/* A package, our program for it, and whether it divides a model by itself over all devices. */
static int find_script(const char *engine, char script[MT_DRIVE_ENGINE_TEXT], int *is_parallel)
{
    mt_drive_engine_text(engine, "script", script);
    *is_parallel = mt_drive_engine_is(engine, "script.parallel", "yes");
    return *script != '\0';
}

int mt_drive_is_python_engine(const char *engine)
{
    char script[MT_DRIVE_ENGINE_TEXT];
    int is_parallel;
    return find_script(engine, script, &is_parallel);
}

const char *mt_drive_python_engine_name(const char *engine, int *is_parallel)
{
    char script[MT_DRIVE_ENGINE_TEXT];
    size_t length = strcspn(engine, "@");
    find_script(engine, script, is_parallel);
    for (size_t i = 0; mt_engine_name_at(i); i++)
        if (strlen(mt_engine_name_at(i)) == length &&
            strncasecmp(mt_engine_name_at(i), engine, length) == 0)
            return mt_engine_name_at(i);
    return engine;
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
    if (mt_drive_find_in_path("python3", environment, path) ||
        mt_drive_find_in_path("python", environment, path))
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

static char *make_settings(const struct mt_drive_python_settings *settings, int is_parallel,
                           size_t n_devices)
{
    json_t *said = json_object();
    const char *version = strchr(settings->engine, '@');
    uint64_t pipeline = settings->pipeline_parallel ? settings->pipeline_parallel : 1;
    uint64_t tensor = settings->tensor_parallel;
    if (!tensor && n_devices / pipeline > 1)
        tensor = n_devices / pipeline;
    put_text(said, "version", version ? version + 1 : NULL);
    put_number(said, "context_tokens", settings->context);
    put_number(said, "sequences", settings->sequences);
    put_text(said, "weight_type", settings->weight_type);
    if (is_parallel) {
        put_text(said, "kv_type", settings->kv_type);
        put_number(said, "batched_tokens", settings->batched_tokens);
        put_number(said, "tensor_parallel", tensor);
        put_number(said, "pipeline_parallel", settings->pipeline_parallel);
        put_number(said, "eager", (uint64_t)settings->eager);
        if (settings->memory_share > 0)
            json_object_set_new(said, "memory_share", json_real(settings->memory_share));
    } else {
        put_number(said, "n_devices", n_devices);
        put_number(said, "kv_offload", (uint64_t)settings->no_kv_offload);
        if (settings->device_map)
            json_object_set_new(said, "device_map", json_loads(settings->device_map, 0, NULL));
    }
    char *text = json_dumps(said, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(said);
    return text;
}

int mt_drive_python_command_init(struct mt_drive_python_command *command,
                                 const struct mt_drive_python_settings *settings, const char *model,
                                 size_t n_devices, char *const *environment, struct mt_error *error)
{
    char script[MT_DRIVE_ENGINE_TEXT];
    char folder[PATH_MAX];
    int is_parallel;
    *command = (struct mt_drive_python_command){.settings = NULL};
    int result = 0;
    find_script(settings->engine, script, &is_parallel);
    if (!n_devices)
        result = FAIL(error, MT_EARG,
                      "%s is rehearsed on GPUs; name them, as --device 24GiB or --device H100-80GB",
                      mt_drive_python_engine_name(settings->engine, &is_parallel));
    if (!result && snprintf(command->model, sizeof command->model, "%s", model) >= PATH_MAX)
        result = FAIL(error, MT_ELIMIT, "%s: the path is too long", model);
    if (!result)
        result = find_python(settings->engine_path, environment, command->python, error);
    if (result)
        return result;
    mt_profile_scripts_folder(folder, sizeof folder);
    if (snprintf(command->script, sizeof command->script, "%s/%s", folder, script) >= PATH_MAX ||
        access(command->script, R_OK) < 0)
        return FAIL(error, MT_ENOTFOUND,
                    "%s, which belongs to memtally, is not in %s; is memtally installed whole?",
                    script, folder);
    command->settings = make_settings(settings, is_parallel, n_devices);
    if (!command->settings)
        return FAIL(error, MT_ENOMEM, "out of memory");
    char *const words[] = {command->python, command->script, command->model, command->settings,
                           NULL};
    memcpy(command->argv, words, sizeof words);
    return 0;
}

void mt_drive_python_command_finish(struct mt_drive_python_command *command)
{
    free(command->settings);
    command->settings = NULL;
}
