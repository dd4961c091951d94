/* SPDX-License-Identifier: MIT */
/* The smallest change of flags with which a rehearsed program runs, each one rehearsed. */
#ifndef ADVISE_SUGGEST_H
#define ADVISE_SUGGEST_H

#include <memtally/rehearsal.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "drive/outcome.h"
#include "search.h"

struct mt_error; /* <memtally/error.h> */

#define MT_ADVISE_DEFAULT_ATTEMPTS   24
#define MT_ADVISE_DEFAULT_SUGGEST_NS ((uint64_t)15 * 1000 * 1000 * 1000)

struct mt_advise_suggest_settings {
    const struct mt_rehearsal_options *options; /* of the rehearsal that did not fit */
    struct mt_rehearsal *rehearsal;             /* the one that did not fit */
    const char *place;                          /* that had no room: "host", "gpu:0" */
    enum mt_drive_outcome was; /* RUNS_OUT or RUNS_SHORT; a change must do better */
    uint64_t n_requests;       /* that an attempt is driven with; 0 where it ran out before */
    size_t attempts_max;       /* 0: the default */
    uint64_t limit_ns;         /* for all; 0: the default */
    const struct mt_drive_listener *listener; /* or NULL */
    const volatile sig_atomic_t *interrupted; /* looked at, or NULL */
};

/* Rehearses the program with flags turned down, in folders of its own below the rehearsal's, which
 * it removes. Errors: MT_EUNSUPPORTED (the program's flags are not known; the text says so), and
 * those of mt_rehearsal_start(). */
int mt_advise_suggest(const struct mt_advise_suggest_settings *settings,
                      struct mt_advise_changes *changes, struct mt_error *error);

#endif
