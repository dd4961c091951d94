/* SPDX-License-Identifier: MIT */
/* Verdicts: whether what a model takes fits into what there is. */
#ifndef MEMTALLY_VERDICT_H
#define MEMTALLY_VERDICT_H

#ifdef __cplusplus
extern "C" {
#endif

/* What the answer is. The man page of `estimate` defines the words. X(NAME, "name"). */
#define MT_VERDICT_LIST(X)                                                                         \
    X(FITS, "FITS")       /* with the high end of the band on every device and on the host */      \
    X(TIGHT, "TIGHT")     /* low end fits; high end or the pool does not, or not all is counted */ \
    X(SPILLS, "SPILLS")   /* weights or cache that were meant for a device lie in host memory */   \
    X(PAGES, "PAGES")     /* mapped weights do not stay in RAM and are read again and again */     \
    X(CANNOT, "CANNOT")   /* the low end of the band does not fit */                               \
    X(EXCEEDS, "EXCEEDS") /* a rehearsed run fits and takes more than it was allowed */

enum mt_verdict {
    MT_VERDICT_UNKNOWN, /* no capacity was given */
#define MT_VERDICT_ENUM(NAME, name) MT_VERDICT_##NAME,
    MT_VERDICT_LIST(MT_VERDICT_ENUM)
#undef MT_VERDICT_ENUM
        MT_VERDICT_COUNT
};

/* "FITS" and so on; "UNKNOWN". Borrowed, static. Any thread. */
const char *mt_verdict_name(enum mt_verdict verdict);

#ifdef __cplusplus
}
#endif
#endif
