/* SPDX-License-Identifier: MIT */
/* A tally and all that it points to, owned as one. */
#ifndef MT_TALLY_OWNER_H
#define MT_TALLY_OWNER_H

#include <memtally/tally.h>

struct mt_owner;

/* A zeroed tally, freed with everything else by mt_tally_destroy(); NULL where memory ran out. */
struct mt_tally *mt_owner_create(struct mt_owner **owner);

/* Zeroed memory and a copy of a text that live as long as the tally; NULL where memory ran out. */
void *mt_owner_alloc(struct mt_owner *owner, size_t size);
char *mt_owner_text(struct mt_owner *owner, const char *text);

#endif
