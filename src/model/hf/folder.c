/* SPDX-License-Identifier: MIT */
/* Which file of a folder to open: a snapshot, a model's folder in the cache of Hugging Face, or any
 * folder with a model in it.
 *
 * models--ORG--NAME/refs/main holds the name of a folder in models--ORG--NAME/snapshots. */
#include <stdio.h>
#include <string.h>

#include "config.h"

#include "base/error.h"
#include "base/out_of_memory.h"

#define GGUF_SHOWN 6

struct looking {
    char names[GGUF_SHOWN][256]; /* the first GGUF models, each with its first file */
    size_t n_gguf;
    char part[256]; /* a later part of a split model, in case the first is not there */
    int has_config;
    int has_index;
    int n_safetensors;
    char safetensors[256];
};

static int ends(const char *name, const char *ending)
{
    size_t length = strlen(name);
    size_t end = strlen(ending);
    return length >= end && strcmp(name + length - end, ending) == 0;
}

/* The number of a part in "NAME-00002-of-00005.gguf", 0 where it is no part. */
static int part_of(const char *name)
{
    size_t length = strlen(name);
    int part;
    int of;
    int used = 0;
    if (length < 20 || sscanf(name + length - 20, "-%5d-of-%5d.gguf%n", &part, &of, &used) != 2 ||
        used != 20)
        return 0;
    return part;
}

static void look_at_gguf(struct looking *looking, const char *name)
{
    if (strncmp(name, "mmproj", 6) == 0 || strlen(name) >= sizeof looking->part)
        return;
    if (part_of(name) > 1) {
        strcpy(looking->part, name);
        return;
    }
    if (looking->n_gguf < GGUF_SHOWN)
        strcpy(looking->names[looking->n_gguf], name);
    looking->n_gguf++;
}

static int look_at(void *to, const char *name)
{
    struct looking *looking = to;
    if (ends(name, ".gguf"))
        look_at_gguf(looking, name);
    looking->has_config |= strcmp(name, "config.json") == 0;
    looking->has_index |= strcmp(name, "model.safetensors.index.json") == 0;
    if (ends(name, ".safetensors") && strlen(name) < sizeof looking->safetensors) {
        if (!looking->n_safetensors++ || strcmp(name, "model.safetensors") == 0)
            strcpy(looking->safetensors, name);
    }
    return 0;
}

static const char *join(struct mt_arena *arena, const char *folder, const char *name)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    return mt_arena_printf(arena, "%.*s/%s", (int)length, folder, name);
}

/* Several different models in one folder are for the user to choose from. */
static int fail_several(const struct looking *looking, const char *folder, struct mt_error *error)
{
    char list[400];
    size_t used = 0;
    for (size_t i = 0; i < looking->n_gguf && i < GGUF_SHOWN; i++) {
        int n = snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", looking->names[i]);
        if (n < 0 || (size_t)n >= sizeof list - used)
            break;
        used += (size_t)n;
    }
    return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s: holds %zu GGUF models, name one: %s%s",
                   folder, looking->n_gguf, list, looking->n_gguf > GGUF_SHOWN ? ", ..." : "");
}

/* The name of what to open, NULL where the folder holds no model. */
static const char *choose(const struct looking *looking)
{
    if (looking->n_gguf == 1)
        return looking->names[0];
    if (looking->has_config)
        return "config.json";
    if (looking->has_index)
        return "model.safetensors.index.json";
    if (looking->n_safetensors)
        return looking->safetensors;
    return looking->part[0] ? looking->part : NULL;
}

struct snapshots {
    char name[256];
    size_t n;
};

static int take_snapshot(void *to, const char *name)
{
    struct snapshots *snapshots = to;
    if (name[0] == '.' || strlen(name) >= sizeof snapshots->name)
        return 0;
    strcpy(snapshots->name, name);
    snapshots->n++;
    return 0;
}

/* What refs/main says; 0 where there is no such file or it holds no plain name. */
static int read_ref(struct mt_arena *arena, const struct mt_model_files *files, const char *folder,
                    char *name, size_t size)
{
    struct mt_model_source source;
    const char *path = join(arena, folder, "refs/main");
    if (!path || files->open(files->argument, path, &source, NULL))
        return 0;
    size_t length = source.size_bytes < size ? (size_t)source.size_bytes : 0;
    int code = length ? source.read(source.argument, 0, name, length, NULL) : MT_EFORMAT;
    source.close(source.argument);
    while (!code && length && strchr(" \r\n", name[length - 1]))
        length--;
    if (code || !length || memchr(name, '/', length) || memchr(name, '\0', length) ||
        name[0] == '.')
        return 0;
    name[length] = '\0';
    return 1;
}

/* The snapshot to read of a model's folder in the cache, NULL where it is none. */
static int find_snapshot(struct mt_model *model, const struct mt_model_files *files,
                         const char *folder, const char **snapshot, struct mt_error *error)
{
    struct snapshots all = {.n = 0};
    char ref[256];
    const char *within = join(&model->arena, folder, "snapshots");
    *snapshot = NULL;
    if (!within)
        return mt_out_of_memory_for(error, folder);
    if (!files->list || !files->is_folder(files->argument, within))
        return 0;
    int has_ref = read_ref(&model->arena, files, folder, ref, sizeof ref);
    if (!has_ref) {
        int code = files->list(files->argument, within, take_snapshot, &all, error);
        if (code)
            return code;
        if (all.n != 1)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                           "%s: has %zu snapshots and no refs/main that chooses one; name one",
                           within, all.n);
    }
    *snapshot = join(&model->arena, within, has_ref ? ref : all.name);
    return *snapshot ? 0 : mt_out_of_memory_for(error, folder);
}

/* Without a list only known names can be tried: a remote repository. */
static int try_names(struct mt_model *model, const struct mt_model_files *files, const char *folder,
                     const char **found, struct mt_error *error)
{
    static const char *const names[] = {"config.json", "model.safetensors.index.json",
                                        "model.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mt_model_source source;
        const char *path = join(&model->arena, folder, names[i]);
        if (!path)
            return mt_out_of_memory_for(error, folder);
        int code = files->open(files->argument, path, &source, error);
        if (code == MT_ENOTFOUND)
            continue;
        if (code)
            return code;
        source.close(source.argument);
        *found = path;
        return 0;
    }
    return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                   "%s: has neither config.json nor model.safetensors; name a GGUF file in it",
                   folder);
}

int mt_model_find_in_folder(struct mt_model *model, const struct mt_model_files *files,
                            const char *folder, const char **found, struct mt_error *error)
{
    struct looking looking = {.n_gguf = 0};
    const char *snapshot;
    if (!files->list)
        return try_names(model, files, folder, found, error);
    int code = find_snapshot(model, files, folder, &snapshot, error);
    if (code)
        return code;
    const char *within = snapshot ? snapshot : folder;
    code = files->list(files->argument, within, look_at, &looking, error);
    if (code)
        return code;
    if (looking.n_gguf > 1)
        return fail_several(&looking, within, error);
    const char *name = choose(&looking);
    if (!name)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "%s: holds no GGUF file, no safetensors and no config.json", within);
    const char *path = join(&model->arena, within, name);
    if (!path)
        return mt_out_of_memory_for(error, folder);
    *found = path;
    return 0;
}
