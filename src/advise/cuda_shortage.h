/* SPDX-License-Identifier: MIT */
/* How memory did not suffice an engine on CUDA. */
#ifndef ADVISE_CUDA_SHORTAGE_H
#define ADVISE_CUDA_SHORTAGE_H

#include <stdint.h>

enum mt_advise_shortage_kind {
    MT_ADVISE_NOT_SHORT,
    MT_ADVISE_SHORT_WEIGHTS,  /* refused while there were only weights */
    MT_ADVISE_SHORT_COMPUTE,  /* refused beside weights */
    MT_ADVISE_SHORT_LATE,     /* refused beside a cache */
    MT_ADVISE_SHORT_GRAPHS,   /* refused while graphs were captured */
    MT_ADVISE_SHORT_NO_CACHE, /* the engine has nothing left for its cache */
    MT_ADVISE_SHORT_CACHE,    /* its cache is too small for one request */
    MT_ADVISE_SHORT_SHARE     /* its share of the device is more than is free */
};

struct mt_advise_shortage {
    enum mt_advise_shortage_kind kind;
    uint64_t missing_bytes;    /* 0: not known */
    uint64_t cache_bytes;      /* that one request needs; 0: not known */
    uint64_t asked_tokens;     /* of the longest request that it is to take; 0: not known */
    uint64_t fits_tokens;      /* the longest request that the engine says would fit; 0 */
    double free_share;         /* of the device, as the engine says; 0 */
    uint64_t activation_bytes; /* at most, as the engine says; 0: not known */
    uint64_t graph_bytes;      /* that it counted before it made a cache; 0: it counted none */
};

#endif
