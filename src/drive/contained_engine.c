/* SPDX-License-Identifier: MIT */
#include "drive/contained_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "base/strbuf.h"
#include "drive/dialect.h"
#include "drive/engines.h"

#define PROCESSES_MAX 512
#define WORDS_MAX     256
#define LINE_BYTES    65536

/* A process that may be an engine. */
struct candidate {
    const char *proc;
    int pid;
    char *words[WORDS_MAX + 1]; /* of its command line, which are in `line` */
    char line[LINE_BYTES + 1];
    size_t index; /* of the word that is the program */
    const char *engine;
    enum mt_drive_program program;
    int pids[PROCESSES_MAX]; /* of all that may be one */
};

static size_t read_of(const struct candidate *candidate, const char *name, char *bytes, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%d/%s", candidate->proc, candidate->pid, name);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(bytes, 1, size, file) : 0;
    if (file)
        fclose(file);
    return n;
}

static int link_of(const struct candidate *candidate, const char *name, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "%s/%d/%s", candidate->proc, candidate->pid, name);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static void read_words(struct candidate *candidate)
{
    size_t n = read_of(candidate, "cmdline", candidate->line, LINE_BYTES);
    size_t n_words = 0;
    candidate->line[n] = '\0';
    for (size_t at = 0; at < n && n_words < WORDS_MAX; at += strlen(candidate->line + at) + 1)
        candidate->words[n_words++] = candidate->line + at;
    candidate->words[n_words] = NULL;
}

/* ---- the model ---- */

static int is_spelled(const struct mt_drive_spelling *flag, const char *word, size_t length)
{
    for (size_t i = 0; i < MT_DRIVE_SPELLINGS; i++)
        if (strlen(flag->names[i]) == length && length &&
            strncmp(flag->names[i], word, length) == 0)
            return 1;
    return 0;
}

/* The last value that a command line gives to a flag, as "-m X" or "--model=X"; NULL for none. */
static const char *value_of(const struct candidate *candidate, const struct mt_drive_spelling *flag)
{
    const char *value = NULL;
    for (char *const *word = candidate->words; *word; word++) {
        size_t length = strcspn(*word, "=");
        if (is_spelled(flag, *word, length))
            value = (*word)[length] ? *word + length + 1 : word[1] ? word[1] : value;
    }
    return value;
}

/* Reads one variable of an environment, and keeps nothing else of it. */
static int read_variable(const struct candidate *candidate, const char *name, char path[PATH_MAX])
{
    char *bytes = calloc(1, LINE_BYTES + 1);
    size_t length = strlen(name);
    int found = 0;
    size_t n = bytes && length ? read_of(candidate, "environ", bytes, LINE_BYTES) : 0;
    for (size_t at = 0; at < n && !found; at += strlen(bytes + at) + 1) {
        found = strncmp(bytes + at, name, length) == 0 && bytes[at + length] == '=' &&
                bytes[at + length + 1];
        if (found)
            snprintf(path, PATH_MAX, "%s", bytes + at + length + 1);
    }
    if (bytes)
        explicit_bzero(bytes, LINE_BYTES);
    free(bytes);
    return found;
}

/* A mapped file that ends as model files do. */
static int find_mapped(const struct candidate *candidate, char path[PATH_MAX])
{
    char name[64];
    char line[PATH_MAX + 128];
    int found = 0;
    snprintf(name, sizeof name, "%s/%d/maps", candidate->proc, candidate->pid);
    FILE *maps = fopen(name, "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        char *slash = strchr(line, '/');
        line[strcspn(line, "\n")] = '\0';
        size_t length = slash ? strlen(slash) : 0;
        found = length > 5 && length < PATH_MAX && strcmp(slash + length - 5, ".gguf") == 0;
        if (found)
            snprintf(path, PATH_MAX, "%s", slash);
    }
    if (maps)
        fclose(maps);
    return found;
}

/* A relative path is one of the process's folder. */
static void make_absolute(const struct candidate *candidate, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    struct mt_strbuf whole = {0};
    if (*path == '/' || !link_of(candidate, "cwd", folder))
        return;
    mt_strbuf_printf(&whole, "%s/%s", strcmp(folder, "/") ? folder : "", path);
    if (whole.length < PATH_MAX)
        snprintf(path, PATH_MAX, "%s", mt_strbuf_text(&whole));
    mt_strbuf_finish(&whole);
}

static int find_model(const struct candidate *candidate, char path[PATH_MAX])
{
    struct mt_drive_dialect dialect;
    mt_drive_dialect_load(candidate->engine, candidate->program, &dialect);
    const struct mt_drive_spelling *flag = &dialect.flags[MT_DRIVE_MODEL];
    const char *value = value_of(candidate, flag);
    int found = 1;
    if (value)
        snprintf(path, PATH_MAX, "%s", value);
    else
        found = read_variable(candidate, flag->variable, path) || find_mapped(candidate, path);
    if (found)
        make_absolute(candidate, path);
    return found;
}

/* ---- the engine ---- */

static int is_server(struct candidate *candidate)
{
    read_words(candidate);
    candidate->engine = NULL;
    return mt_drive_program_find(candidate->words, &candidate->index, &candidate->engine,
                                 &candidate->program) > 0 &&
           candidate->program == MT_DRIVE_SERVER;
}

/* The words before it are a program's that started it, such as an interpreter. */
static void take_engine(const struct candidate *candidate, struct mt_profile_engine *engine)
{
    engine->driver = &mt_profile_llama_server;
    engine->script[0] = engine->modules[0] = '\0';
    if (candidate->index > 0 || !link_of(candidate, "exe", engine->program))
        snprintf(engine->program, PATH_MAX, "%s", candidate->words[candidate->index]);
}

static int fail_to_find(const struct mt_container *container, const char *engine,
                        struct mt_error *error)
{
    return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                   "the container runs %s, and memtally profiles llama-server in containers so "
                   "far; 'memtally attach --container %s' looks at it from outside",
                   engine ? engine : "no engine that memtally knows", container->name);
}

static int take(const struct candidate *candidate, const struct mt_container *container,
                struct mt_contained_engine *found, struct mt_error *error)
{
    take_engine(candidate, &found->engine);
    found->pid = candidate->pid;
    if (find_model(candidate, found->model_path))
        return MT_OK;
    return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                   "neither the command line of process %d nor a file that it has mapped tells the "
                   "model of the container %s",
                   candidate->pid, container->name);
}

int mt_contained_engine_find(const char *proc, const struct mt_container *container,
                             struct mt_contained_engine *found, struct mt_error *error)
{
    struct candidate *candidate = calloc(1, sizeof *candidate);
    size_t n = candidate ? mt_container_processes(container, candidate->pids, PROCESSES_MAX) : 0;
    const char *other = NULL;
    char line[MT_DRIVE_ENGINE_TEXT];
    int code = candidate ? MT_EUNSUPPORTED : MT_ENOMEM;
    for (size_t i = 0; i < n && code == MT_EUNSUPPORTED; i++) {
        candidate->proc = proc;
        candidate->pid = candidate->pids[i];
        if (!is_server(candidate))
            continue;
        if (*mt_drive_engine_text(candidate->engine, "profile.server", line))
            code = take(candidate, container, found, error);
        else
            other = candidate->engine;
    }
    free(candidate);
    if (code == MT_EUNSUPPORTED)
        fail_to_find(container, other, error);
    else if (code == MT_ENOMEM)
        mt_out_of_memory(error);
    return code;
}
