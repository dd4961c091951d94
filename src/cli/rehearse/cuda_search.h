/* SPDX-License-Identifier: MIT */
/* The smallest change of an engine's settings with which it fits on CUDA devices.
 *
 * Unlike the search over llama.cpp's flags it cannot afford many rehearsals: an engine takes half a
 * minute to start. What can help follows from how it failed, and what an engine said of itself
 * leaves out what cannot be enough. Prints nothing and runs nothing. */
#ifndef CLI_REHEARSE_CUDA_SEARCH_H
#define CLI_REHEARSE_CUDA_SEARCH_H

#include <stddef.h>
#include <stdint.h>

#include "cli/rehearse/cuda_settings.h"
#include "cli/rehearse/search.h"

/* How memory did not suffice. */
enum rehearse_shortage_kind {
    REHEARSE_NOT_SHORT,
    REHEARSE_SHORT_WEIGHTS,  /* refused while there were only weights */
    REHEARSE_SHORT_COMPUTE,  /* refused beside weights */
    REHEARSE_SHORT_LATE,     /* refused beside a cache */
    REHEARSE_SHORT_GRAPHS,   /* refused while graphs were captured */
    REHEARSE_SHORT_NO_CACHE, /* the engine has nothing left for its cache */
    REHEARSE_SHORT_CACHE,    /* its cache is too small for one request */
    REHEARSE_SHORT_SHARE     /* its share of the device is more than is free */
};

struct rehearse_shortage {
    enum rehearse_shortage_kind kind;
    uint64_t missing_bytes;    /* 0: not known */
    uint64_t cache_bytes;      /* that one request needs; 0: not known */
    uint64_t asked_tokens;     /* of the longest request that it is to take; 0: not known */
    uint64_t fits_tokens;      /* the longest request that the engine says would fit; 0 */
    double free_share;         /* of the device, as the engine says; 0 */
    uint64_t activation_bytes; /* at most, as the engine says; 0: not known */
    uint64_t graph_bytes;      /* that it counted before it made a cache; 0: it counted none */
};

/* How a command line went. */
struct rehearse_cuda_fit {
    int fits;
    uint64_t held_bytes; /* of the fullest device */
    uint64_t capacity_bytes;
    struct rehearse_shortage shortage; /* where it does not fit */
};

struct rehearse_cuda_search {
    const struct rehearse_command *command; /* that does not fit */
    struct rehearse_shortage shortage;
    uint64_t n_devices;
    uint64_t device_bytes;           /* of the smallest */
    double share;                    /* of a device that it takes; 0: no share */
    uint64_t now[REHEARSE_SETTINGS]; /* numbers as the engine said them; 0: not known */
    uint64_t whole_bytes; /* of the fullest device where nothing limits it; 0: not known */
    uint64_t fixed_bytes; /* of these, what neither context nor sequences change */
    size_t attempts_max;
    size_t fits_max; /* changes after which it is enough */
    /* Tries a command line, of which `flags` changed. Returns 0, or another number to end the
     * search. */
    int (*attempt)(void *argument, char *const *argv, const char *flags,
                   struct rehearse_cuda_fit *fit);
    void *argument;
};

/* Adds to *changes. Returns 0, or MT_ENOMEM. */
int rehearse_cuda_search(const struct rehearse_cuda_search *search,
                         struct rehearse_changes *changes);

#endif
