/* SPDX-License-Identifier: MIT */
/* Reading the log of a program of llama.cpp. It is somebody else's text: lines may be cut, long, or
 * nonsense, and say nothing then. */
#include "engine_log.h"

#include <fcntl.h>
#include <memtally/predict.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"

#define FLOOD_BYTES (8u << 20) /* of a log in one go: nobody means to have them read */
#define KEPT_BYTES  65536u     /* of its end */

static void read_words(struct mt_drive_log_words *words)
{
    static const char *const numbers[] = {"context", "batch", "ubatch", "sequences"};
    struct mt_engine engine;
    if (mt_engine_find(NULL, &engine, NULL) < 0)
        return;
    const struct {
        const char *key;
        char *text;
    } texts[] = {{"log.settings", words->settings},
                 {"log.on", words->on},
                 {"log.off", words->off},
                 {"log.flash_attention.on", words->flash_on},
                 {"log.flash_attention.off", words->flash_off},
                 {"log.layers", words->layers},
                 {"log.ready", words->ready},
                 {"log.fit_failure", words->fit_failure},
                 {"log.complaint", words->complaint}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        mt_engine_text(&engine, texts[i].key, texts[i].text, MT_DRIVE_LOG_WORDS);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        (void)mt_engine_word(&engine, "log.numbers", numbers[i], words->numbers[i],
                             MT_DRIVE_LOG_KEY);
    (void)mt_engine_word(&engine, "log.switches", "unified_kv", words->unified, MT_DRIVE_LOG_KEY);
    (void)mt_engine_word(&engine, "log.switches", "flash_attention", words->flash_attention,
                         MT_DRIVE_LOG_KEY);
    mt_engine_text(&engine, "log.levels", words->levels, sizeof words->levels);
}

void mt_drive_log_init(struct mt_drive_log *log, int fd)
{
    *log = (struct mt_drive_log){.fd = fd,
                                 .context_tokens = MT_UNKNOWN,
                                 .batch = MT_UNKNOWN,
                                 .ubatch = MT_UNKNOWN,
                                 .sequences = MT_UNKNOWN,
                                 .layers_on_devices = MT_UNKNOWN,
                                 .layers = MT_UNKNOWN};
    read_words(&log->words);
}

/* What stands in `line` behind the first of `words` that it has, or NULL. */
static const char *behind_any(const char *line, const char *words)
{
    for (const char *at = words; *at;) {
        size_t length = strcspn(at, "|");
        const char *found = memmem(line, strlen(line), at, length);
        if (found && length)
            return found + length;
        at += length + (at[length] == '|');
    }
    return NULL;
}

static int begins_with_any(const char *text, const char *words)
{
    for (const char *at = words; *at;) {
        size_t length = strcspn(at, "|");
        if (length && strncmp(text, at, length) == 0)
            return 1;
        at += length + (at[length] == '|');
    }
    return 0;
}

/* What follows `key`, a word of its own, and an equals sign: "llama_context: n_ctx         = 8192".
 * NULL for another line. */
static const char *value_of(const char *line, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = line; length && (at = strstr(at, key)) != NULL; at += length) {
        const char *behind = at + length + strspn(at + length, " ");
        if ((at == line || at[-1] == ' ') && *behind == '=')
            return behind + 1 + strspn(behind + 1, " ");
    }
    return NULL;
}

static void take_number(const char *line, const char *key, uint64_t *number)
{
    const char *value = value_of(line, key);
    if (value && *value >= '0' && *value <= '9')
        *number = strtoull(value, NULL, 10);
}

static void take_switch(const struct mt_drive_log_words *words, const char *value, int *state)
{
    if (value && begins_with_any(value, words->on))
        *state = MT_SWITCH_ON;
    else if (value && begins_with_any(value, words->off))
        *state = MT_SWITCH_OFF;
}

/* "offloaded 37/37 layers to GPU", where the pattern has stars for the numbers. */
static void take_layers(const char *line, struct mt_drive_log *log)
{
    uint64_t numbers[2];
    size_t n = 0;
    const char *pattern = log->words.layers;
    size_t length = strcspn(pattern, "*");
    const char *at = length ? memmem(line, strlen(line), pattern, length) : NULL;
    if (!at)
        return;
    for (; *pattern; pattern++) {
        char *end;
        if (*pattern != '*') {
            if (*at++ != *pattern)
                return;
            continue;
        }
        if (n == 2 || *at < '0' || *at > '9')
            return;
        numbers[n++] = strtoull(at, &end, 10);
        at = end;
    }
    if (n < 2)
        return;
    log->layers_on_devices = numbers[0];
    log->layers = numbers[1];
}

static void take_context(const char *line, struct mt_drive_log *log)
{
    const struct mt_drive_log_words *words = &log->words;
    uint64_t *const numbers[] = {&log->context_tokens, &log->batch, &log->ubatch, &log->sequences};
    if (!behind_any(line, words->settings))
        return;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        take_number(line, words->numbers[i], numbers[i]);
    take_switch(words, value_of(line, words->unified), &log->unified);
    take_switch(words, value_of(line, words->flash_attention), &log->flash_attention);
}

/* "0.09.947.135 E llama_model_load: …" without its first two words. */
static const char *without_marks(const struct mt_drive_log_words *words, const char *line)
{
    size_t time = strspn(line, "0123456789.");
    if (time > 4 && line[time] == ' ' && line[time + 1] && strchr(words->levels, line[time + 1]) &&
        line[time + 2] == ' ')
        return line + time + 3;
    return line;
}

static int is_complaint(const struct mt_drive_log_words *words, const char *line)
{
    const char *text = without_marks(words, line);
    size_t n_levels = strlen(words->levels);
    if (n_levels && text >= line + 2 && text[-2] == words->levels[n_levels - 1])
        return 1;
    return behind_any(line, words->complaint) != NULL;
}

static void take_complaint(struct mt_drive_log *log)
{
    if (is_complaint(&log->words, log->line))
        snprintf(log->complaints[log->n_complaints++ % MT_DRIVE_COMPLAINTS], MT_DRIVE_LINE_BYTES,
                 "%s", without_marks(&log->words, log->line));
}

static void take_line(struct mt_drive_log *log)
{
    const struct mt_drive_log_words *words = &log->words;
    const char *line = log->line;
    const char *why = behind_any(line, words->fit_failure);
    take_context(line, log);
    take_layers(line, log);
    take_complaint(log);
    if (behind_any(line, words->flash_on))
        log->flash_attention = MT_SWITCH_ON;
    else if (behind_any(line, words->flash_off))
        log->flash_attention = MT_SWITCH_OFF;
    if (why)
        snprintf(log->fit_failure, sizeof log->fit_failure, "%s", why + strspn(why, " "));
    if (behind_any(line, words->ready))
        log->is_ready = 1;
}

static void take_bytes(struct mt_drive_log *log, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            log->line[log->length] = '\0';
            take_line(log);
            log->length = 0;
        } else if (log->length + 1 < sizeof log->line) {
            log->line[log->length++] = bytes[i] ? bytes[i] : ' ';
        }
    }
}

/* What was read is not kept but for its end, so that a log takes little of the disk however long it
 * grows. Where the file system cannot make a hole, the log begins anew. */
static void drop_read(struct mt_drive_log *log)
{
    if (log->offset - log->dropped < FLOOD_BYTES)
        return;
    uint64_t until = log->offset - KEPT_BYTES;
    if (fallocate(log->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)log->dropped,
                  (off_t)(until - log->dropped)) == 0)
        log->dropped = until;
    else if (ftruncate(log->fd, 0) == 0)
        log->offset = log->dropped = 0;
}

/* No further than the log is long now: a program may write faster than anybody reads. */
void mt_drive_log_read(struct mt_drive_log *log)
{
    char bytes[8192];
    struct stat status;
    ssize_t got;
    if (fstat(log->fd, &status) < 0 || (uint64_t)status.st_size <= log->offset)
        return;
    uint64_t left = (uint64_t)status.st_size - log->offset;
    if (left > FLOOD_BYTES) {
        log->offset += left - KEPT_BYTES;
        left = KEPT_BYTES;
        log->length = 0;
    }
    while (left && (got = pread(log->fd, bytes, left < sizeof bytes ? left : sizeof bytes,
                                (off_t)log->offset)) > 0) {
        take_bytes(log, bytes, (size_t)got);
        log->offset += (uint64_t)got;
        left -= (uint64_t)got;
    }
    drop_read(log);
}

static void join_complaints(const struct mt_drive_log *log, char *text, size_t size)
{
    size_t n = log->n_complaints < MT_DRIVE_COMPLAINTS ? log->n_complaints : MT_DRIVE_COMPLAINTS;
    size_t used = 0;
    for (size_t i = log->n_complaints - n; i < log->n_complaints && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " / " : "",
                                 log->complaints[i % MT_DRIVE_COMPLAINTS]);
}

void mt_drive_log_last_words(const struct mt_drive_log *log, char *text, size_t size)
{
    if (log->n_complaints) {
        join_complaints(log, text, size);
        return;
    }
    char tail[512];
    off_t start = log->offset > sizeof tail - 1 ? (off_t)(log->offset - (sizeof tail - 1)) : 0;
    ssize_t got = pread(log->fd, tail, sizeof tail - 1, start);
    size_t used = 0;
    tail[got > 0 ? got : 0] = '\0';
    text[0] = '\0';
    char *rest = tail;
    if (start)
        strsep(&rest, "\n");
    while (rest && used + 1 < size) {
        const char *line = without_marks(&log->words, strsep(&rest, "\n"));
        if (*line)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " / " : "", line);
    }
}
