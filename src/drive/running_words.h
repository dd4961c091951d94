/* SPDX-License-Identifier: MIT */
/* What the words of a server that already runs tell of a tally. */
#ifndef DRIVE_RUNNING_WORDS_H
#define DRIVE_RUNNING_WORDS_H

#include <memtally/tally.h>
#include <stddef.h>

#include "running.h"

/* Words on a tally of the server (running_words.c). */
struct mt_drive_words {
    struct mt_tally_word items[MT_RUNNING_WORDS];
    char names[MT_RUNNING_WORDS][96];
    size_t n;
    char why[192]; /* a sentence on what is not known, or "" */
};

/* What the server's words, its model's header and the rules of its version make of a tally: weights
 * and cache, in bytes, or that they are unknown; what it computes with always is. */
void mt_drive_running_words(const struct mt_drive_running *running,
                            const struct mt_drive_running_header *header,
                            const struct mt_tally *tally, struct mt_drive_words *words);

/* What is unknown in a tally of processes that were all seen from outside, where no server's words
 * are kept; nothing if the recorder was in one of them. `is_model` says that they are known to
 * compute a model. */
void mt_drive_unseen_words(const struct mt_tally *tally, int is_model,
                           struct mt_drive_words *words);

#endif
