/* SPDX-License-Identifier: MIT */
/* What a running server wrote when it had started. Of a log nothing is taken but numbers, behind
 * words of its engine's table:
 *
 *   log.tokens                   how many tokens the cache has room for
 *   log.weights, log.cache       a device's name, and what is of it: CUDA0 size="450.0 MiB"
 *   log.end                      ends the sizes of one model */
#include <memtally/error_code.h>
#include <memtally/model_file.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drive/running_internal.h"

#define LOG_MAX     ((uint64_t)16 << 20) /* a larger one is not read */
#define TOKENS_MOST 1000000000000000u
#define SIZE_MOST   ((uint64_t)1 << 50)
#define WORDS_BYTES 96

/* A runner says itself what it has: only the words of the engine itself count. */
static int find_words(const struct mt_drive_running *running, const char *key,
                      char words[WORDS_BYTES])
{
    struct mt_engine engine;
    *words = '\0';
    if (strcmp(running->engine, running->rules) == 0 &&
        mt_engine_find(running->engine, &engine, NULL) == 0)
        mt_engine_text(&engine, key, words, WORDS_BYTES);
    return *words != '\0';
}

/* The number that a text begins with, of `n` bytes; 0 where there is none. */
static uint64_t number_at(const char *text, size_t n)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n && text[i] >= '0' && text[i] <= '9' && number < TOKENS_MOST; i++)
        number = number * 10 + (uint64_t)(text[i] - '0');
    return number < TOKENS_MOST ? number : 0;
}

/* An older run of the server may have written to the same log: the last line counts. */
static void take_tokens(const char *text, size_t n, struct mt_drive_running *running)
{
    char words[WORDS_BYTES];
    if (!find_words(running, "log.tokens", words))
        return;
    running->cache_tokens = 0;
    size_t length = strlen(words);
    const char *end = text + n;
    const char *at = memmem(text, n, words, length);
    while (at) {
        at += length;
        at += at < end && *at == ' ';
        running->cache_tokens = number_at(at, (size_t)(end - at));
        at = memmem(at, (size_t)(end - at), words, length);
    }
    running->is_logged = running->cache_tokens != 0;
}

/* Adds what a line says behind these words to the bytes of the host or of devices. One that cannot
 * be read makes it more than any machine has. */
static void add_size(const char *line, size_t n, const char *words, uint64_t bytes[2])
{
    char rest[96];
    char device[32];
    char size[32];
    uint64_t one = SIZE_MOST;
    const char *at = *words ? memmem(line, n, words, strlen(words)) : NULL;
    if (!at)
        return;
    at += strlen(words);
    snprintf(rest, sizeof rest, "%.*s", (int)(line + n - at < 95 ? line + n - at : 95), at);
    int is_read = sscanf(rest, "%31s size=\"%31[^\"]\"", device, size) == 2 &&
                  mt_parse_size(size, &one) == MT_OK && one < SIZE_MOST;
    uint64_t *sum = &bytes[is_read && strcmp(device, "CPU") != 0];
    if (*sum < SIZE_MOST)
        *sum += is_read ? one : SIZE_MOST;
}

/* Models come one after the other, and one is tried in several ways: what was ended last counts. */
static void take_sizes(const char *text, size_t n, struct mt_drive_running *running)
{
    char words[3][WORDS_BYTES];
    uint64_t bytes[2][2] = {{0}};
    const char *end = text + n;
    find_words(running, "log.weights", words[0]);
    find_words(running, "log.cache", words[1]);
    if (running->n_loaded != 1 || !find_words(running, "log.end", words[2]))
        return;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((stop ? stop : end) - text);
        add_size(text, length, words[0], bytes[0]);
        add_size(text, length, words[1], bytes[1]);
        if (memmem(text, length, words[2], strlen(words[2]))) {
            memcpy(running->logged_bytes, bytes, sizeof bytes);
            memset(bytes, 0, sizeof bytes);
        }
        text += length + 1;
    }
}

void mt_drive_running_take_log(const char *text, size_t n, struct mt_drive_running *running)
{
    take_tokens(text, n, running);
    take_sizes(text, n, running);
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
    char words[WORDS_BYTES];
    if (running->n_loaded == 1 && !running->logged_bytes[0][0] && !running->logged_bytes[0][1])
        return find_words(running, "log.end", words);
    return !running->cache_tokens && find_words(running, "log.tokens", words);
}
