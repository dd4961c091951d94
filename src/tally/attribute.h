/* SPDX-License-Identifier: MIT */
/* From a picture and the state of a process to claims: who holds each resident byte. */
#ifndef MT_TALLY_ATTRIBUTE_H
#define MT_TALLY_ATTRIBUTE_H

#include <memtally/provenance.h>

#include "tally/carry.h"
#include "tally/replay.h"
#include "tally/shared.h"

/* A part of a row. Claim 0 stands for what nothing claims. */
struct mt_claim {
    enum mt_category category;
    enum mt_provenance provenance;
    char *name;
    uint64_t allocated_bytes;
    int allocated_unknown;
    uint64_t resident_bytes;
    uint64_t anonymous_bytes; /* of the resident ones: backed by no file */
    uint64_t shared_bytes;    /* of the resident ones: counted for an earlier process */
    uint64_t count;
    uint64_t unplaced_bytes; /* of blocks that lie nobody knows where, less their resident ones */
    int is_carried;          /* some of the resident ones follow from events */
};

struct mt_claims {
    struct mt_claim *items;
    size_t n;
    size_t capacity;
    struct mt_table by_hash;
};

/* A process at a moment. */
struct mt_subject {
    const struct mt_carried *carried;
    const struct mt_replay *replay;   /* the state at that moment; NULL: without the recorder */
    const struct mt_maps *first_maps; /* before the first event; NULL: not known */
    int every_block;                  /* the recorder wrote down every heap block */
    uint64_t page_bytes;
};

struct mt_attribution {
    struct mt_claims claims;
    uint64_t total_resident_bytes; /* the sum over all claims */
    uint64_t rollup_bytes; /* Rss of smaps_rollup, else VmRSS; MT_UNKNOWN where carried, too */
    uint64_t swap_bytes;
    uint64_t unseen_bytes;   /* unattributed, in mappings that the recorder saw no call for */
    char *model_path;        /* of the first mapped model; NULL where there is none */
    const char *engine_name; /* by its library; NULL where none is known */
};

/* Attributes the pages of a picture. `seen` (may be NULL) has the file pages of earlier processes
 * and gets those of this one. Returns 0 or MT_ENOMEM. */
int mt_attribute(const struct mt_subject *subject, struct mt_shared_pages *seen,
                 struct mt_attribution *attribution);

void mt_attribution_finish(struct mt_attribution *attribution);

/* Up to so many resident bytes become another claim's (claims.c). */
void mt_claim_give(struct mt_claim *from, struct mt_claim *to, uint64_t bytes);

/* Blocks whose place nobody has kept lie in the heap's arenas: its claim gives each claim what of
 * its unplaced blocks it has pages for (claims.c). */
void mt_claims_place(struct mt_claims *claims, size_t heap);

/* The claim of that category, provenance and name, made when new; 0 where memory ran out. */
size_t mt_claim_of(struct mt_claims *claims, enum mt_category category,
                   enum mt_provenance provenance, const char *name, size_t name_length);

/* Returns 0 or MT_ENOMEM. */
int mt_claims_init(struct mt_claims *claims);
void mt_claims_finish(struct mt_claims *claims);

#endif
