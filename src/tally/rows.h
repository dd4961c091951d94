/* SPDX-License-Identifier: MIT */
/* From claims to the rows of a place. */
#ifndef MT_TALLY_ROWS_H
#define MT_TALLY_ROWS_H

#include "tally/attribute.h"
#include "tally/tally_arena.h"

/* The place of a process, of a tree or of a device, whose claims sum to `total`; it is called
 * "host" and has no peak and no capacity yet. NULL where memory ran out. */
struct mt_tally_place *mt_tally_make_place(struct mt_tally_arena *arena,
                                           const struct mt_claims *claims, uint64_t total);

#endif
