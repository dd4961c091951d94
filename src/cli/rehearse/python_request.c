/* SPDX-License-Identifier: MIT */
/* A model in an engine that is a Python package: what of the options such an engine has, and which
 * folder is meant. */
#include "cli/rehearse/python_request.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/hub_cache.h"

#define FAIL(error, code, ...) mt_fail(error, code, MT_NO_OFFSET, "rehearse: " __VA_ARGS__)

/* Refuses options that only llama.cpp has a setting for. */
static int check(const struct estimate_options *options, const char *name, int is_parallel,
                 struct mt_error *error)
{
    static const struct estimate_options nothing;
    struct estimate_options rest = *options;
    rest.engine = rest.engine_path = rest.weight_type = rest.output = NULL;
    rest.context = rest.sequences = rest.host_bytes = 0;
    rest.devices = nothing.devices;
    rest.explain = rest.format = 0;
    if (is_parallel) {
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
                "%s has no such setting; it takes --context, --sequences, --weight-type%s", name,
                is_parallel ? ", --kv-type, --memory-share, --batched-tokens, "
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
    const struct mt_model_files *files = mt_model_files_local();
    char revised[PATH_MAX];
    return (snprintf(revised, sizeof revised, "%s@main", name) < PATH_MAX &&
            cli_hub_cache_find(files, revised, environment, path, PATH_MAX)) ||
           cli_hub_cache_find(files, name, environment, path, PATH_MAX);
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
                    "%s has no config.json, which this engine needs; for a GGUF file, leave out "
                    "--engine",
                    model);
    return 0;
}

int rehearse_python_request(const struct estimate_options *options, const char *model,
                            size_t n_devices, const char *device_map,
                            struct mt_drive_python_command *command, struct mt_error *error)
{
    int is_parallel;
    char folder[PATH_MAX];
    const char *name = mt_drive_python_engine_name(options->engine, &is_parallel);
    const struct mt_drive_python_settings settings = {
        .engine = options->engine,
        .engine_path = options->engine_path,
        .weight_type = options->weight_type,
        .context = options->context,
        .sequences = options->sequences,
        .no_kv_offload = options->no_kv_offload,
        .kv_type = options->kv_type,
        .memory_share = options->memory_share,
        .batched_tokens = options->batched_tokens,
        .tensor_parallel = options->tensor_parallel,
        .pipeline_parallel = options->pipeline_parallel,
        .eager = options->eager,
        .device_map = device_map,
    };
    int result = check(options, name, is_parallel, error);
    if (!result)
        result = find_model(model, environ, folder, error);
    return result ? result
                  : mt_drive_python_command_init(command, &settings, folder, n_devices, environ,
                                                 error);
}
