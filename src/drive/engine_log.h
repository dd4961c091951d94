/* SPDX-License-Identifier: MIT */
/* What a program of llama.cpp writes while it starts: what it decided, and whether it is ready. */
#ifndef DRIVE_ENGINE_LOG_H
#define DRIVE_ENGINE_LOG_H

#include <stddef.h>
#include <stdint.h>

#define MT_DRIVE_LINE_BYTES 512
#define MT_DRIVE_COMPLAINTS 6

#define MT_DRIVE_LOG_WORDS 160 /* bytes of a key of the table */
#define MT_DRIVE_LOG_KEY   24

/* Words of the engine's table, keys log.*; "|" stands between several. */
struct mt_drive_log_words {
    char settings[MT_DRIVE_LOG_WORDS];
    char numbers[4][MT_DRIVE_LOG_KEY]; /* context, batch, micro-batch, sequences */
    char unified[MT_DRIVE_LOG_KEY];
    char flash_attention[MT_DRIVE_LOG_KEY];
    char on[MT_DRIVE_LOG_WORDS];
    char off[MT_DRIVE_LOG_WORDS];
    char flash_on[MT_DRIVE_LOG_WORDS];
    char flash_off[MT_DRIVE_LOG_WORDS];
    char layers[MT_DRIVE_LOG_WORDS];
    char ready[MT_DRIVE_LOG_WORDS];
    char fit_failure[MT_DRIVE_LOG_WORDS];
    char levels[MT_DRIVE_LOG_KEY];
    char complaint[MT_DRIVE_LOG_WORDS];
};

/* Numbers are MT_UNKNOWN until a line said them; of several the last counts, since a server plans
 * before it loads. Start with mt_drive_log_init(). */
struct mt_drive_log {
    struct mt_drive_log_words words;
    int fd; /* of the file, read by position and, once read, emptied; not owned */
    uint64_t offset;
    uint64_t dropped;               /* bytes of the file's beginning that are no longer there */
    char line[MT_DRIVE_LINE_BYTES]; /* the one that is not complete yet */
    size_t length;
    int is_ready; /* the server listens */
    uint64_t context_tokens;
    uint64_t batch;
    uint64_t ubatch;
    uint64_t sequences;
    uint64_t layers_on_devices; /* the output counts as one */
    uint64_t layers;
    int flash_attention; /* enum mt_switch: ON, OFF, or AUTO where it is not known */
    int unified;         /* enum mt_switch */
    char fit_failure[MT_DRIVE_LINE_BYTES]; /* why the engine's own fit gave up, or "" */
    char complaints[MT_DRIVE_COMPLAINTS][MT_DRIVE_LINE_BYTES]; /* the last lines of errors */
    size_t n_complaints;                                       /* that there were */
};

void mt_drive_log_init(struct mt_drive_log *log, int fd);

/* Reads what is new. If there is too much, only the end is read. */
void mt_drive_log_read(struct mt_drive_log *log);

/* The last lines as one, at most `size` bytes with the zero, without the marks of time and level.
 */
void mt_drive_log_last_words(const struct mt_drive_log *log, char *text, size_t size);

#endif
