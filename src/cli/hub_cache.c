/* SPDX-License-Identifier: MIT */
/* Names of a hub in the local cache of Hugging Face. Fetches nothing, opens no model.
 *
 *   CACHE/models--ORG--NAME/refs/REVISION     the name of a snapshot
 *   CACHE/models--ORG--NAME/snapshots/NAME    a folder of the model's files */
#include "cli/hub_cache.h"

#include <limits.h>
#include <memtally/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "cli/remote_files.h"

#define SNAPSHOT_MAX 128

int cli_files_have(const struct mt_model_files *files, const char *path)
{
    struct mt_model_source source;
    if (files->is_folder(files->argument, path))
        return 1;
    int code = files->open(files->argument, path, &source, NULL);
    if (code == MT_OK)
        source.close(source.argument);
    return code == MT_OK || code == MT_EPERM;
}

static int find_cache(char *const *environment, char cache[PATH_MAX])
{
    const char *hub = mt_environment_get_set(environment, "HF_HUB_CACHE");
    const char *older = mt_environment_get_set(environment, "HUGGINGFACE_HUB_CACHE");
    const char *home = mt_environment_get_set(environment, "HF_HOME");
    const char *caches = mt_environment_get_set(environment, "XDG_CACHE_HOME");
    const char *user = mt_environment_get_set(environment, "HOME");
    int n = -1;
    if (hub || older)
        n = snprintf(cache, PATH_MAX, "%s", hub ? hub : older);
    else if (home)
        n = snprintf(cache, PATH_MAX, "%s/hub", home);
    else if (caches)
        n = snprintf(cache, PATH_MAX, "%s/huggingface/hub", caches);
    else if (user)
        n = snprintf(cache, PATH_MAX, "%s/.cache/huggingface/hub", user);
    return n >= 0 && n < PATH_MAX;
}

static int find_model(const struct mt_model_files *files, const char *name,
                      const struct cli_hub_name *split, char *const *environment,
                      char folder[PATH_MAX])
{
    char cache[PATH_MAX];
    int org = (int)strcspn(name, "/");
    int model = (int)split->repository - org - 1;
    if (!find_cache(environment, cache))
        return 0;
    int n = snprintf(folder, PATH_MAX, "%s/models--%.*s--%.*s", cache, org, name, model,
                     name + org + 1);
    return n >= 0 && n < PATH_MAX && cli_files_have(files, folder);
}

/* The snapshot that a revision stands for: what its reference says, else itself. */
static void find_snapshot(const struct mt_model_files *files, const char *folder,
                          const char *revision, char snapshot[SNAPSHOT_MAX])
{
    char path[PATH_MAX];
    char said[SNAPSHOT_MAX] = "";
    struct mt_model_source file;
    int n = snprintf(path, sizeof path, "%s/refs/%s", folder, revision);
    if (n >= 0 && n < PATH_MAX && files->open(files->argument, path, &file, NULL) == MT_OK) {
        size_t length = file.size_bytes < sizeof said - 1 ? file.size_bytes : sizeof said - 1;
        if (file.read(file.argument, 0, said, length, NULL) != MT_OK)
            said[0] = '\0';
        file.close(file.argument);
    }
    said[strcspn(said, " \r\n")] = '\0';
    int is_plain = said[0] && said[0] != '.' && !strchr(said, '/');
    snprintf(snapshot, SNAPSHOT_MAX, "%s", is_plain ? said : revision);
}

/* The model's folder is enough where nothing further is named: the readers choose a snapshot. */
int cli_hub_cache_find(const struct mt_model_files *files, const char *name,
                       char *const *environment, char *path, size_t size)
{
    struct cli_hub_name split;
    char folder[PATH_MAX];
    char snapshot[SNAPSHOT_MAX];
    if (!cli_hub_name_split(name, &split) || !find_model(files, name, &split, environment, folder))
        return 0;
    find_snapshot(files, folder, split.revision, snapshot);
    int n = strchr(name, '@') || split.file_length
                ? snprintf(path, size, "%s/snapshots/%s%s%.*s", folder, snapshot,
                           split.file_length ? "/" : "", (int)split.file_length, split.file)
                : snprintf(path, size, "%s", folder);
    return n >= 0 && (size_t)n < size && cli_files_have(files, path);
}
