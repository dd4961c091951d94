/* SPDX-License-Identifier: MIT */
/* The smallest change of flags with which a program fits.
 *
 * Knows what llama.cpp's flags cost, and asks whether a command line fits; how that is found out is
 * the caller's. Prints nothing. */
#ifndef ADVISE_SEARCH_H
#define ADVISE_SEARCH_H

#include <stddef.h>
#include <stdint.h>

#include "drive/flags.h"

/* How a command line went. */
struct mt_advise_fit {
    int fits;
    uint64_t headroom_bytes; /* of the fullest place, where it fits */
};

struct mt_advise_search {
    const struct mt_drive_command *command; /* that does not fit */
    char *const *environment;               /* ends with NULL, or NULL */
    uint64_t layers;                        /* of the model; 0: not known */
    uint64_t experts;                       /* of each layer; 0: none, or not known */
    uint64_t context;                       /* tokens where no flag says how many; 0: not known */
    int is_host_short;    /* it is the host that has no room, so nothing may move there */
    int is_weights_alone; /* there was nothing but weights yet, so only moving them helps */
    /* Tries a command line. Returns 0, or another number to end the search. */
    int (*attempt)(void *argument, char *const *argv, struct mt_advise_fit *fit);
    void *argument;
};

#define MT_ADVISE_CHANGE_BYTES 160 /* of a text about a change; longer ones are cut */

/* A change with which it fits. */
struct mt_advise_change {
    char flags[MT_ADVISE_CHANGE_BYTES];      /* "-c 32768", "-ctk q8_0 -ctv q8_0 -c 16384" */
    char instead_of[MT_ADVISE_CHANGE_BYTES]; /* these flags as they were, "" where none was given */
    char
        costs[MT_ADVISE_CHANGE_BYTES]; /* "answers of the same quality, prompts read more slowly" */
    char options[MT_ADVISE_CHANGE_BYTES]; /* the same as memtally's own options, or "" */
    uint64_t headroom_bytes; /* of llama.cpp's: what the place that had no room then has left */
    uint64_t held_bytes;     /* of the place that had no room, or of the fullest; 0: not known */
    uint64_t capacity_bytes;
};

#define MT_ADVISE_CHANGES_MAX 10

struct mt_advise_changes {
    struct mt_advise_change items[MT_ADVISE_CHANGES_MAX];
    size_t n;                           /* cheapest first */
    size_t n_tried;                     /* command lines */
    char least[MT_ADVISE_CHANGE_BYTES]; /* flags of the least that was tried in vain, or "" */
    int is_cut_short;                   /* the caller ended the search */
};

/* Looks for changes of one kind of flag each; where there is none, of several together. Returns 0,
 * or MT_ENOMEM. */
int mt_advise_search(const struct mt_advise_search *search, struct mt_advise_changes *changes);

#endif
