/* SPDX-License-Identifier: MIT */
/* What users call a model: a path, a name in Ollama's store, a Modelfile, a URL, a name on a hub or
 * in the local cache of one. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "cli/hub_cache.h"
#include "cli/model/model.h"
#include "cli/remote_files.h"
#include "net/http_client.h"

#define MODELFILE_BYTES_MAX (1u << 20)

/* Ollama's stores in the order in which they are looked at: the user's, then the service's. Returns
 * 0 past the last. */
static int store_at(size_t index, char store[PATH_MAX])
{
    const char *set = getenv("OLLAMA_MODELS");
    const char *home = getenv("HOME");
    if (set && *set)
        return index == 0 && snprintf(store, PATH_MAX, "%s", set) < PATH_MAX;
    if (index == 0 && home)
        return snprintf(store, PATH_MAX, "%s/.ollama/models", home) < PATH_MAX;
    if (index <= 1)
        return snprintf(store, PATH_MAX, "/usr/share/ollama/.ollama/models") < PATH_MAX;
    return 0;
}

/* The manifest of a name, in the first store that has it. */
static int find_in_ollama(const char *name, char path[PATH_MAX], struct mt_error *error)
{
    char store[PATH_MAX];
    char first[201] = "";
    for (size_t i = 0; store_at(i, store); i++) {
        int result = mt_ollama_manifest_path(store, name, path, PATH_MAX);
        if (result < 0)
            return mt_fail(error, result, MT_NO_OFFSET,
                           "'%.100s' cannot be a name of a model in Ollama", name);
        if (access(path, F_OK) == 0)
            return 0;
        if (i == 0)
            snprintf(first, sizeof first, "%.200s", path);
    }
    return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "Ollama has no model %.100s: there is no %s",
                   name, first);
}

static int open_ollama(const char *name, struct mt_model **model, struct mt_error *error)
{
    char path[PATH_MAX];
    int result = find_in_ollama(name, path, error);
    return result < 0 ? result : mt_model_open(path, NULL, model, error);
}

static int is_modelfile(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !strcmp(slash ? slash + 1 : path, "Modelfile");
}

static int read_modelfile(const char *path, char from[PATH_MAX], struct mt_error *error)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return mt_fail_errno(error, errno, "%s", path);
    char *text = malloc(MODELFILE_BYTES_MAX);
    size_t length = text ? fread(text, 1, MODELFILE_BYTES_MAX, file) : 0;
    fclose(file);
    if (!text)
        return mt_out_of_memory(error);
    int result = mt_ollama_modelfile_from(text, length, from, PATH_MAX);
    free(text);
    return result < 0
               ? mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                         "%s: expected a line FROM with the name or the path of a model", path)
               : 0;
}

/* What is meant as a path: no name begins so, and few names end in ".gguf". */
static int is_path(const char *from)
{
    static const char ending[] = ".gguf";
    char manifest[PATH_MAX];
    size_t length = strlen(from);
    if (strchr("./~", *from))
        return 1;
    return length >= sizeof ending && strcmp(from + length - (sizeof ending - 1), ending) == 0 &&
           find_in_ollama(from, manifest, NULL) < 0;
}

/* Opens the file that FROM names, seen from the Modelfile. Returns 1 where there is none, and *why.
 */
static int open_beside(const char *path, const char *from, struct mt_model **model, int *why,
                       struct mt_error *error)
{
    char beside[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int folder = slash && *from != '/' ? (int)(slash - path + 1) : 0;
    int length = snprintf(beside, sizeof beside, "%.*s%s", folder, path, from);
    if (length < (int)sizeof beside && access(beside, F_OK) == 0)
        return mt_model_open(beside, NULL, model, error);
    *why = length < (int)sizeof beside ? errno : ENAMETOOLONG;
    return 1;
}

/* What FROM names is a path beside the Modelfile where there is such a file, else a name. */
static int open_modelfile(const char *path, struct mt_model **model, struct mt_error *error)
{
    char from[PATH_MAX];
    int why = ENOENT;
    int result = read_modelfile(path, from, error);
    if (result == 0)
        result = open_beside(path, from, model, &why, error);
    if (result <= 0)
        return result;
    if (is_path(from))
        return mt_fail_errno(error, why, "%s: FROM names %.200s", path, from);
    return open_ollama(from, model, error);
}

/* A URL, or a name on the hub; only the headers of its files are fetched. */
static int open_remote(const char *name, struct mt_model **model, struct mt_error *error)
{
    char path[CLI_REMOTE_PATH_MAX];
    struct cli_remote remote = {.endpoint = getenv("HF_ENDPOINT"), .token = getenv("HF_TOKEN")};
    struct mt_model_files files = cli_remote_files(&remote);
    if (remote.token && !*remote.token)
        remote.token = NULL;
    int result = cli_remote_path(&remote, name, path, sizeof path, error);
    if (result == 0)
        result = mt_http_start(error);
    if (result < 0)
        return result;
    result = mt_model_open(path, &files, model, error);
    mt_http_stop();
    return result;
}

int estimate_write_sparse(const struct mt_model *model, int remote, const char *path,
                          const struct mt_sparse_options *options, struct mt_error *error)
{
    struct cli_remote from = {.endpoint = getenv("HF_ENDPOINT"), .token = getenv("HF_TOKEN")};
    struct mt_model_files files = cli_remote_files(&from);
    struct mt_sparse_options sparse = *options;
    if (!remote || !strstr(mt_model_describe(model)->path, "://"))
        return mt_model_write_sparse(model, path, options, error);
    if (from.token && !*from.token)
        from.token = NULL;
    int result = mt_http_start(error);
    if (result < 0)
        return result;
    sparse.files = &files;
    result = mt_model_write_sparse(model, path, &sparse, error);
    mt_http_stop();
    return result;
}

int estimate_write_remote(const struct mt_model *model, const char *path,
                          const struct mt_sparse_options *options, struct mt_error *error)
{
    return estimate_write_sparse(model, 1, path, options, error);
}

int estimate_open_model(const char *name, int remote, struct mt_model **model,
                        struct mt_error *error)
{
    static const char ollama[] = "ollama:";
    char cached[PATH_MAX];
    if (!*name)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "the name of the model is empty");
    if (!strncmp(name, ollama, sizeof ollama - 1))
        return open_ollama(name + sizeof ollama - 1, model, error);
    if (cli_remote_is_name(name) && remote)
        return open_remote(name, model, error);
    if (strstr(name, "://") && !cli_remote_is_name(name))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "'%.200s' cannot be read; expected an https URL", name);
    if (strstr(name, "://"))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "memtally reads '%.200s' over the network only with --remote", name);
    if (is_modelfile(name))
        return open_modelfile(name, model, error);
    if (cli_remote_is_name(name) &&
        cli_hub_cache_find(mt_model_files_local(), name, environ, cached, sizeof cached))
        return mt_model_open(cached, NULL, model, error);
    int result = mt_model_open(name, NULL, model, error);
    if (result == MT_ENOTFOUND && cli_remote_is_name(name))
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "there is no %.200s here, nor in the cache of Hugging Face; "
                       "--remote looks for it on a hub",
                       name);
    return result;
}
