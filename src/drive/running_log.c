/* SPDX-License-Identifier: MIT */
/* What a running server wrote when it had started. Of a log nothing is taken but the number behind
 * the words "log.tokens" of its engine's table. */
#include <memtally/model_file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drive/running_internal.h"

#define LOG_MAX     ((uint64_t)16 << 20) /* a larger one is not read */
#define TOKENS_MOST 1000000000000000u

/* The number that a text begins with, of `n` bytes; 0 where there is none. */
static uint64_t number_at(const char *text, size_t n)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n && text[i] >= '0' && text[i] <= '9' && number < TOKENS_MOST; i++)
        number = number * 10 + (uint64_t)(text[i] - '0');
    return number < TOKENS_MOST ? number : 0;
}

/* An older run of the server may have written to the same log: the last line counts. */
void mt_drive_running_take_log(const char *text, size_t n, struct mt_drive_running *running)
{
    struct mt_engine engine;
    char words[96] = "";
    if (mt_engine_find(running->engine, &engine, NULL) == 0)
        mt_engine_text(&engine, "log.tokens", words, sizeof words);
    running->cache_tokens = 0;
    size_t length = strlen(words);
    const char *end = text + n;
    const char *at = length ? memmem(text, n, words, length) : NULL;
    while (at) {
        at += length;
        at += at < end && *at == ' ';
        running->cache_tokens = number_at(at, (size_t)(end - at));
        at = memmem(at, (size_t)(end - at), words, length);
    }
    running->is_logged = running->cache_tokens != 0;
}

/* Nothing but a regular file is opened, and a pipe that somebody else reads is none. */
static void read_output(const char *path, struct mt_drive_running *running)
{
    const struct mt_model_files *files = mt_model_files_local();
    struct mt_model_source source;
    if (files->open(files->argument, path, &source, NULL) != 0)
        return;
    size_t n = source.size_bytes <= LOG_MAX ? (size_t)source.size_bytes : 0;
    char *text = n ? malloc(n) : NULL;
    if (text && source.read(source.argument, 0, text, n, NULL) == 0)
        mt_drive_running_take_log(text, n, running);
    free(text);
    source.close(source.argument);
}

void mt_drive_running_read_log(const char *proc, struct mt_drive_running *running)
{
    char path[PATH_MAX];
    for (int fd = 1; fd <= 2 && mt_drive_running_wants_log(running); fd++) {
        snprintf(path, sizeof path, "%s/%ld/fd/%d", proc, (long)running->pid, fd);
        read_output(path, running);
    }
}

int mt_drive_running_wants_log(const struct mt_drive_running *running)
{
    struct mt_engine engine;
    char words[96] = "";
    if (running->cache_tokens || mt_engine_find(running->engine, &engine, NULL) < 0)
        return 0;
    mt_engine_text(&engine, "log.tokens", words, sizeof words);
    return *words != '\0';
}
