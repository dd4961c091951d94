/* SPDX-License-Identifier: MIT */
/* A tally and all that it points to, owned as one. */
#ifndef MT_TALLY_OWNER_H
#define MT_TALLY_OWNER_H

#include <stddef.h>

struct mt_tally_arena;

/* A zeroed tally, freed with everything else by mt_tally_destroy(); NULL where memory ran out. */
struct mt_tally *mt_tally_create(struct mt_tally_arena **arena);

/* Zeroed memory and a copy of a text that live as long as the tally; NULL where memory ran out. */
void *mt_tally_alloc(struct mt_tally_arena *arena, size_t size);
char *mt_tally_text(struct mt_tally_arena *arena, const char *text);

#endif
