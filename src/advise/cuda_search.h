/* SPDX-License-Identifier: MIT */
/* The smallest change of an engine's settings with which it fits on CUDA devices.
 *
 * Unlike the search over llama.cpp's flags it cannot afford many rehearsals: an engine takes half a
 * minute to start. What can help follows from how it failed, and what an engine said of itself
 * leaves out what cannot be enough. Prints nothing and runs nothing. */
#ifndef ADVISE_CUDA_SEARCH_H
#define ADVISE_CUDA_SEARCH_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_settings.h"
#include "cuda_shortage.h"
#include "search.h"

/* How a command line went. */
struct mt_advise_cuda_fit {
    int fits;
    uint64_t held_bytes; /* of the fullest device */
    uint64_t capacity_bytes;
    struct mt_advise_shortage shortage; /* where it does not fit */
};

struct mt_advise_cuda_search {
    const struct mt_drive_command *command; /* that does not fit */
    struct mt_advise_shortage shortage;
    uint64_t n_devices;
    uint64_t device_bytes;            /* of the smallest */
    double share;                     /* of a device that it takes; 0: no share */
    uint64_t now[MT_ADVISE_SETTINGS]; /* numbers as the engine said them; 0: not known */
    uint64_t whole_bytes; /* of the fullest device where nothing limits it; 0: not known */
    uint64_t fixed_bytes; /* of these, what neither context nor sequences change */
    size_t attempts_max;
    size_t fits_max; /* changes after which it is enough */
    /* Tries a command line, of which `flags` changed. Returns 0, or another number to end the
     * search. */
    int (*attempt)(void *argument, char *const *argv, const char *flags,
                   struct mt_advise_cuda_fit *fit);
    void *argument;
};

/* Adds to *changes. Returns 0, or MT_ENOMEM. */
int mt_advise_cuda_search(const struct mt_advise_cuda_search *search,
                          struct mt_advise_changes *changes);

#endif
