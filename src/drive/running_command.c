/* SPDX-License-Identifier: MIT */
/* What the command line and the environment of a running server say. Of the environment only what
 * the engine's table lists is kept: variables that stand for flags which are asked for here, and
 * those of the key "environment". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drive/flags.h"
#include "drive/running_internal.h"

#define FILE_BYTES ((size_t)1 << 18)

/* Flags whose variables are read: none is a secret's. */
static const enum mt_drive_flag asked[] = {
    MT_DRIVE_MODEL,     MT_DRIVE_CONTEXT,         MT_DRIVE_GPU_LAYERS, MT_DRIVE_KV_TYPE_K,
    MT_DRIVE_KV_TYPE_V, MT_DRIVE_SEQUENCES,       MT_DRIVE_UNIFIED_KV, MT_DRIVE_NO_KV_OFFLOAD,
    MT_DRIVE_KV_TYPE,   MT_DRIVE_TENSOR_PARALLEL, MT_DRIVE_PORT,
};

/* A file of /proc that is texts with a NUL behind each; freed by the caller. *n counts bytes. */
static char *read_texts(const char *proc, pid_t pid, const char *name, size_t *n)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%ld/%s", proc, (long)pid, name);
    FILE *file = fopen(path, "re");
    char *bytes = file ? malloc(FILE_BYTES) : NULL;
    *n = bytes ? fread(bytes, 1, FILE_BYTES - 1, file) : 0;
    if (bytes)
        bytes[*n] = '\0';
    if (file)
        fclose(file);
    return bytes;
}

static int is_listed(const struct mt_engine *engine, const struct mt_drive_command *command,
                     const char *text)
{
    char name[MT_DRIVE_SPELLING_BYTES];
    size_t length = strcspn(text, "=");
    if (length >= sizeof name)
        return 0;
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    if (mt_engine_has(engine, "environment", name))
        return 1;
    for (size_t i = 0; command->dialect && i < sizeof asked / sizeof *asked; i++)
        if (strcmp(command->dialect->flags[asked[i]].variable, name) == 0)
            return 1;
    return 0;
}

/* What is not listed is not left in our memory either. */
static void take_environment(const char *proc, pid_t pid, const struct mt_engine *engine,
                             const struct mt_drive_command *command,
                             struct mt_drive_running *running)
{
    size_t n;
    size_t used = 0;
    size_t n_variables = 0;
    char *bytes = read_texts(proc, pid, "environ", &n);
    for (size_t at = 0; bytes && at < n; at += strlen(bytes + at) + 1) {
        size_t size = strlen(bytes + at) + 1;
        if (n_variables == MT_RUNNING_VARIABLES || size > sizeof running->environment - used ||
            !is_listed(engine, command, bytes + at))
            continue;
        running->variables[n_variables++] = memcpy(running->environment + used, bytes + at, size);
        used += size;
    }
    if (bytes)
        explicit_bzero(bytes, n);
    free(bytes);
}

/* The model of a command line that has no flag of the tables for it: behind one of the words
 * "model.words", else the first word behind the program that is no flag, where the table says that
 * the model stands there. */
static void find_model(const struct mt_engine *engine, const struct mt_drive_command *command,
                       struct mt_drive_running *running)
{
    size_t first = command->program_index + 1;
    for (size_t i = first; i + 1 < command->n_words; i++)
        if (mt_engine_has(engine, "model.words", command->words[i])) {
            mt_drive_running_take_text(running->model, sizeof running->model,
                                       command->words[i + 1]);
            return;
        }
    if (first < command->n_words && command->words[first][0] != '-' &&
        mt_engine_has(engine, "model.words", "first"))
        mt_drive_running_take_text(running->model, sizeof running->model, command->words[first]);
}

static void take_flag(const struct mt_drive_command *command, struct mt_drive_running *running,
                      enum mt_drive_flag flag, char *text, size_t size)
{
    mt_drive_running_take_text(text, size, mt_drive_flag_value(command, running->variables, flag));
}

static void take_flags(const struct mt_drive_command *command, struct mt_drive_running *running)
{
    char *const *variables = running->variables;
    take_flag(command, running, MT_DRIVE_MODEL, running->model, sizeof running->model);
    take_flag(command, running, MT_DRIVE_KV_TYPE_K, running->kv_type_k, sizeof running->kv_type_k);
    take_flag(command, running, MT_DRIVE_KV_TYPE_V, running->kv_type_v, sizeof running->kv_type_v);
    take_flag(command, running, MT_DRIVE_KV_TYPE, running->kv_type_k, sizeof running->kv_type_k);
    take_flag(command, running, MT_DRIVE_GPU_LAYERS, running->gpu_layers,
              sizeof running->gpu_layers);
    running->ranks =
        mt_drive_flag_number(mt_drive_flag_value(command, variables, MT_DRIVE_TENSOR_PARALLEL), 1);
    running->told_port =
        (int)mt_drive_flag_number(mt_drive_flag_value(command, variables, MT_DRIVE_PORT), 0);
    running->has_sequences = mt_drive_flag_value(command, variables, MT_DRIVE_SEQUENCES) != NULL;
    running->is_unified = mt_drive_flag_value(command, variables, MT_DRIVE_UNIFIED_KV) != NULL;
    running->keeps_kv_on_host =
        mt_drive_flag_value(command, variables, MT_DRIVE_NO_KV_OFFLOAD) != NULL;
}

static char **split(char *bytes, size_t n)
{
    size_t n_words = 0;
    for (size_t at = 0; at < n; at += strlen(bytes + at) + 1)
        n_words++;
    char **words = calloc(n_words + 1, sizeof *words);
    n_words = 0;
    for (size_t at = 0; words && at < n; at += strlen(bytes + at) + 1)
        words[n_words++] = bytes + at;
    return words;
}

void mt_drive_running_command(const char *proc, pid_t pid, struct mt_drive_running *running)
{
    struct mt_engine engine;
    struct mt_drive_command command;
    size_t n;
    char *bytes = read_texts(proc, pid, "cmdline", &n);
    char **words = bytes ? split(bytes, n) : NULL;
    if (words && mt_engine_find(running->engine, &engine, NULL) == 0) {
        mt_drive_command_copy(words, &command);
        take_environment(proc, pid, &engine, &command, running);
        find_model(&engine, &command, running);
        take_flags(&command, running);
        mt_drive_command_finish(&command);
    }
    free(words);
    free(bytes);
}
