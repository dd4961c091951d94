/* SPDX-License-Identifier: MIT */
/* What the engines' tables say of starting and driving them. An engine is "vllm" or "vllm@0.11.0",
 * whose keys are then those of its newest version; NULL is the one that is taken where none is
 * named. */
#ifndef DRIVE_ENGINES_H
#define DRIVE_ENGINES_H

#include <stddef.h>

#define MT_DRIVE_ENGINE_TEXT 256

/* The value of a key; "" where the table has none, or there is no such engine. */
const char *mt_drive_engine_text(const char *engine, const char *key,
                                 char text[MT_DRIVE_ENGINE_TEXT]);

/* The value of `name` in a key whose value is words NAME=VALUE, or "". */
const char *mt_drive_engine_word(const char *engine, const char *key, const char *name,
                                 char text[MT_DRIVE_ENGINE_TEXT]);

/* Whether `word` is a spelling of a flag, by the name that it has in the tables. */
int mt_drive_engine_spells(const char *engine, const char *flag, const char *word);

/* Whether a key has this value. */
int mt_drive_engine_is(const char *engine, const char *key, const char *value);

#endif
