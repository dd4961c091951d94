/* SPDX-License-Identifier: MIT */
/* Finding the sentences of the engines' tables in what a program wrote. Which engine wrote it
 * nobody asks: a program may have several, and none writes what another one does. */
#include "sentences.h"

#include <stdio.h>
#include <string.h>

#include <memtally/settings.h>

#include "engine/engine.h"

static void part(const struct mt_engine *engine, size_t n, const char *name, char *text,
                 size_t size)
{
    char key[32];
    snprintf(key, sizeof key, "says.%zu%s", n, name);
    mt_engine_text(engine, key, text, size);
}

/* Number `n` of an engine, from 1; 0 behind the last one. */
static int read_sentence(const struct mt_engine *engine, size_t n,
                         struct mt_drive_sentence *sentence)
{
    char key[32];
    *sentence = (struct mt_drive_sentence){.words = ""};
    part(engine, n, "", sentence->words, sizeof sentence->words);
    part(engine, n, ".why", sentence->why, sizeof sentence->why);
    part(engine, n, ".number", sentence->number, sizeof sentence->number);
    part(engine, n, ".change", sentence->change, sizeof sentence->change);
    part(engine, n, ".short", sentence->what, sizeof sentence->what);
    sentence->what[strcspn(sentence->what, " ")] = '\0';
    snprintf(key, sizeof key, "says.%zu.short", n);
    sentence->is_early = mt_engine_has(engine, key, "early");
    return *sentence->words != '\0';
}

int mt_drive_sentence_find(const char *said, int only_early, struct mt_drive_sentence *sentence)
{
    struct mt_engine engine;
    for (size_t i = 0; mt_engine_name_at(i); i++)
        for (size_t n = 1; mt_engine_find(mt_engine_name_at(i), &engine, NULL) == 0 &&
                           read_sentence(&engine, n, sentence);
             n++)
            if ((sentence->is_early || !only_early) && strstr(said, sentence->words))
                return 1;
    return 0;
}

const char *mt_drive_words_find(const char *said, const char *key, size_t *length)
{
    struct mt_engine engine;
    char words[128];
    for (size_t i = 0; mt_engine_name_at(i); i++) {
        if (mt_engine_find(mt_engine_name_at(i), &engine, NULL) < 0)
            continue;
        mt_engine_text(&engine, key, words, sizeof words);
        const char *at = *words ? strstr(said, words) : NULL;
        *length = strlen(words);
        if (at)
            return at;
    }
    return NULL;
}

int mt_drive_phase_is(const char *phase, const char *key)
{
    struct mt_engine engine;
    char name[128];
    for (size_t i = 0; mt_engine_name_at(i); i++)
        if (mt_engine_find(mt_engine_name_at(i), &engine, NULL) == 0 &&
            strcmp(mt_engine_text(&engine, key, name, sizeof name), phase) == 0)
            return 1;
    return 0;
}
