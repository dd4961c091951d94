/* SPDX-License-Identifier: MIT */
/* What llama.cpp knows of a family of models and its GGUF files do not say. */
#ifndef MT_MODEL_FAMILY_GGUF_H
#define MT_MODEL_FAMILY_GGUF_H

#include <memtally/model_file.h>

#include "model/families.h"

/* Which layers attend to a window, where the file has no list of them. Of each `period` layers one
 * is global. */
enum mt_window_rule {
    MT_WINDOW_NEVER,        /* even where the file names a window */
    MT_WINDOW_LISTED,       /* only the file's list says it */
    MT_WINDOW_GLOBAL_LAST,  /* the last of each period is global */
    MT_WINDOW_GLOBAL_FIRST, /* the first */
    MT_WINDOW_ALWAYS        /* all layers that attend */
};

/* Which layers are recurrent. */
enum mt_recurrence_rule {
    MT_RECURS_NEVER,
    MT_RECURS_ALWAYS,       /* and no layer attends */
    MT_RECURS_BESIDE,       /* each layer attends and is recurrent */
    MT_RECURS_WITHOUT_KV,   /* those without key and value heads */
    MT_RECURS_WITHOUT_BOTH, /* those without key and value heads and without feed-forward */
    MT_RECURS_BY_INTERVAL   /* all but each full_attention_interval-th */
};

enum mt_family_trait {
    MT_FAMILY_LATENT = 1 << 0,       /* multi-head latent attention, where the file says how */
    MT_FAMILY_SECTIONS = 1 << 1,     /* positions have sections, whatever the file says */
    MT_FAMILY_MAY_SECTION = 1 << 2,  /* where the file gives two or more */
    MT_FAMILY_NO_CACHE = 1 << 3,     /* all tokens at once, nothing is kept */
    MT_FAMILY_EMBEDDER = 1 << 4,     /* no language model */
    MT_FAMILY_CHUNKED = 1 << 5,      /* windows are chunks */
    MT_FAMILY_SHARES_CACHE = 1 << 6, /* the last layers read the caches of earlier ones */
    MT_FAMILY_PARTLY = 1 << 7,       /* its cache is not one of keys and values alone */
};

struct mt_family {
    int is_known;
    enum mt_arch arch;
    enum mt_window_rule window;
    unsigned period;
    unsigned default_window; /* 0: it has windows only where the file gives one */
    enum mt_recurrence_rule recurs;
    enum mt_recurrence recurrence;
    unsigned traits;
};

/* The family of an architecture, or NULL. Borrowed, static. */
const struct mt_family *mt_family_of_gguf(const char *architecture);

#endif
