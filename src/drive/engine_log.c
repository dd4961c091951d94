/* SPDX-License-Identifier: MIT */
/* Reading the log of a program of llama.cpp. It is somebody else's text: lines may be cut, long, or
 * nonsense, and say nothing then. */
#include "engine_log.h"

#include <fcntl.h>
#include <memtally/predict.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLOOD_BYTES (8u << 20) /* of a log in one go: nobody means to have them read */
#define KEPT_BYTES  65536u     /* of its end */

void mt_drive_log_init(struct mt_drive_log *log, int fd)
{
    *log = (struct mt_drive_log){.fd = fd,
                                 .context_tokens = MT_UNKNOWN,
                                 .batch = MT_UNKNOWN,
                                 .ubatch = MT_UNKNOWN,
                                 .sequences = MT_UNKNOWN,
                                 .layers_on_devices = MT_UNKNOWN,
                                 .layers = MT_UNKNOWN};
}

/* What follows `key` and an equals sign: "llama_context: n_ctx         = 8192". NULL for another
 * line. */
static const char *value_of(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    if (!at)
        return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    return *at == '=' ? at + 1 + strspn(at + 1, " ") : NULL;
}

static void take_number(const char *line, const char *key, uint64_t *number)
{
    const char *value = value_of(line, key);
    if (value && *value >= '0' && *value <= '9')
        *number = strtoull(value, NULL, 10);
}

/* "offloaded 37/37 layers to GPU". */
static void take_layers(const char *line, struct mt_drive_log *log)
{
    static const char words[] = "offloaded ";
    const char *at = strstr(line, words);
    unsigned long some;
    unsigned long all;
    if (at && sscanf(at + sizeof words - 1, "%lu/%lu layers to GPU", &some, &all) == 2) {
        log->layers_on_devices = some;
        log->layers = all;
    }
}

static void take_context(const char *line, struct mt_drive_log *log)
{
    const char *unified = value_of(line, "kv_unified");
    const char *flash = value_of(line, "flash_attn");
    if (!strstr(line, "llama_context:") && !strstr(line, "llama_init_from_model:"))
        return;
    take_number(line, " n_ctx", &log->context_tokens);
    take_number(line, " n_batch", &log->batch);
    take_number(line, " n_ubatch", &log->ubatch);
    take_number(line, " n_seq_max", &log->sequences);
    if (unified)
        log->unified = *unified == 't' ? MT_SWITCH_ON : MT_SWITCH_OFF;
    if (flash && (!strncmp(flash, "enabled", 7) || *flash == '1'))
        log->flash_attention = MT_SWITCH_ON;
    else if (flash && (!strncmp(flash, "disabled", 8) || *flash == '0'))
        log->flash_attention = MT_SWITCH_OFF;
}

/* "0.09.947.135 E llama_model_load: …" without its first two words. */
static const char *without_marks(const char *line)
{
    size_t time = strspn(line, "0123456789.");
    if (time > 4 && line[time] == ' ' && strchr("DIWE", line[time + 1]) && line[time + 2] == ' ')
        return line + time + 3;
    return line;
}

/* Lines of errors have the mark E; asserts and what the C++ runtime says have none. */
static int is_complaint(const char *line)
{
    static const char *const words[] = {"GGML_ASSERT",      "GGML_ABORT", "fatal error",
                                        "terminate called", "what():",    "error:"};
    const char *text = without_marks(line);
    if (text >= line + 2 && text[-2] == 'E')
        return 1;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(line, words[i]))
            return 1;
    return 0;
}

static void take_complaint(struct mt_drive_log *log)
{
    if (is_complaint(log->line))
        snprintf(log->complaints[log->n_complaints++ % MT_DRIVE_COMPLAINTS], MT_DRIVE_LINE_BYTES,
                 "%s", without_marks(log->line));
}

static void take_line(struct mt_drive_log *log)
{
    static const char failed[] = "failed to fit params to free device memory: ";
    const char *line = log->line;
    const char *why = strstr(line, failed);
    take_context(line, log);
    take_layers(line, log);
    take_complaint(log);
    if (strstr(line, "Flash Attention was auto, set to enabled") ||
        strstr(line, "Flash Attention enabled"))
        log->flash_attention = MT_SWITCH_ON;
    else if (strstr(line, "Flash Attention was auto, set to disabled") ||
             strstr(line, "Flash Attention disabled"))
        log->flash_attention = MT_SWITCH_OFF;
    if (why)
        snprintf(log->fit_failure, sizeof log->fit_failure, "%s", why + sizeof failed - 1);
    if (strstr(line, "listening on http") || strstr(line, "server is listening"))
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
        const char *line = without_marks(strsep(&rest, "\n"));
        if (*line)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " / " : "", line);
    }
}
