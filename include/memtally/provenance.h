/* SPDX-License-Identifier: MIT */
/* What stands behind a figure: where it comes from, and what an estimate's term rests on. */
#ifndef MEMTALLY_PROVENANCE_H
#define MEMTALLY_PROVENANCE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Where a figure comes from, surest first. X(NAME, "name"). */
#define MT_PROVENANCE_LIST(X)                                                                      \
    X(READ, "read")             /* from a file's header */                                         \
    X(EXACT, "exact")           /* the engine or the allocator call said so */                     \
    X(DERIVED, "derived")       /* a named rule for a named engine version */                      \
    X(MEASURED, "measured")     /* the operating system or the driver said so */                   \
    X(INFERRED, "inferred")     /* a heuristic */                                                  \
    X(CALIBRATED, "calibrated") /* learnt on this machine */                                       \
    X(ASSUMED, "assumed")

enum mt_provenance {
#define MT_PROVENANCE_ENUM(NAME, name) MT_PROVENANCE_##NAME,
    MT_PROVENANCE_LIST(MT_PROVENANCE_ENUM)
#undef MT_PROVENANCE_ENUM
        MT_PROVENANCE_COUNT
};

/* What an estimate's figure rests on. X(NAME, "name"). */
#define MT_TERM_LIST(X)                                                                            \
    X(RULE, "rule")           /* a rule of the engine's version, applied to the model */           \
    X(REHEARSED, "rehearsed") /* the engine itself, asked on devices that are not there */         \
    X(LEARNT, "learnt")       /* measurements on this machine */

enum mt_term_kind {
    MT_TERM_NONE, /* of a measurement */
#define MT_TERM_ENUM(NAME, name) MT_TERM_##NAME,
    MT_TERM_LIST(MT_TERM_ENUM)
#undef MT_TERM_ENUM
        MT_TERM_COUNT
};

/* The name of a provenance ("exact"). Borrowed, static. Any thread. */
const char *mt_provenance_name(enum mt_provenance provenance);

/* What a figure rests on, in a word ("rehearsed"); "none" of a measurement. Borrowed, static. Any
 * thread. */
const char *mt_term_kind_name(enum mt_term_kind kind);

#ifdef __cplusplus
}
#endif
#endif
