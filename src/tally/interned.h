/* SPDX-License-Identifier: MIT */
/* Byte strings, each kept once, by numbers from 1. */
#ifndef MT_TALLY_INTERNED_H
#define MT_TALLY_INTERNED_H

#include "base/arena.h"
#include "tally/table.h"

struct mt_text {
    const char *text; /* not terminated */
    size_t length;
};

/* Start from {0}. items[0] is never used. */
struct mt_interned {
    struct mt_arena arena;
    struct mt_table by_hash;
    struct mt_text *items;
    size_t n; /* one more than there are; 0 while there are none */
    size_t capacity;
};

void mt_interned_finish(struct mt_interned *interned);

/* The number of these bytes, which are copied when new. Returns 0 or MT_ENOMEM. */
int mt_interned_number(struct mt_interned *interned, const void *bytes, size_t length,
                       uint32_t *number);

#endif
