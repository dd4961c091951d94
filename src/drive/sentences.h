/* SPDX-License-Identifier: MIT */
/* What engines say where memory does not suffice: the keys "says" of their tables. */
#ifndef DRIVE_SENTENCES_H
#define DRIVE_SENTENCES_H

#include <stddef.h>

/* One sentence of an engine's. Texts are "" where the table has none. */
struct mt_drive_sentence {
    char words[128];
    char what[32];    /* what is short: "cache", "no_cache", "share" */
    char why[256];    /* what that means */
    char number[128]; /* words before the number that would do */
    char change[128]; /* what helps, before that number */
    int is_early;     /* the engine ends by it before it takes anything */
};

/* The first sentence of any engine that `said` has; of those that are early alone, where only these
 * count. Returns 0 where there is none. */
int mt_drive_sentence_find(const char *said, int only_early, struct mt_drive_sentence *sentence);

/* Where `said` has the words of a key of any engine ("says.asked"), or NULL; *length is that of the
 * words. */
const char *mt_drive_words_find(const char *said, const char *key, size_t *length);

/* Whether a phase is what an engine's key names ("phase.graphs"). */
int mt_drive_phase_is(const char *phase, const char *key);

#endif
