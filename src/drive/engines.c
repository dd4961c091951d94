/* SPDX-License-Identifier: MIT */
/* Texts of the engines' tables. */
#include "engines.h"

#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

static int find(const char *name, struct mt_engine *engine)
{
    char plain[MT_ENGINE_NAME_BYTES];
    int length = name ? (int)strcspn(name, "@") : 0;
    if (length >= MT_ENGINE_NAME_BYTES)
        return 0;
    snprintf(plain, sizeof plain, "%.*s", length, name ? name : "");
    return mt_engine_find(name ? plain : NULL, engine, NULL) == 0;
}

const char *mt_drive_engine_text(const char *engine, const char *key,
                                 char text[MT_DRIVE_ENGINE_TEXT])
{
    struct mt_engine found;
    text[0] = '\0';
    return find(engine, &found) ? mt_engine_text(&found, key, text, MT_DRIVE_ENGINE_TEXT) : text;
}

const char *mt_drive_engine_word(const char *engine, const char *key, const char *name,
                                 char text[MT_DRIVE_ENGINE_TEXT])
{
    struct mt_engine found;
    text[0] = '\0';
    if (find(engine, &found))
        (void)mt_engine_word(&found, key, name, text, MT_DRIVE_ENGINE_TEXT);
    return text;
}

int mt_drive_engine_spells(const char *engine, const char *flag, const char *word)
{
    struct mt_engine found;
    char name[MT_DRIVE_ENGINE_TEXT];
    for (size_t i = 0; find(engine, &found) &&
                       mt_engine_part_at(&found, "flags", flag, i, name, sizeof name) == 0;
         i++)
        if (strcmp(name, word) == 0)
            return 1;
    return 0;
}

int mt_drive_engine_is(const char *engine, const char *key, const char *value)
{
    char text[MT_DRIVE_ENGINE_TEXT];
    return strcmp(mt_drive_engine_text(engine, key, text), value) == 0;
}
