/* SPDX-License-Identifier: MIT */
/* How a rehearsal went. */
#ifndef CLI_REHEARSE_OUTCOME_H
#define CLI_REHEARSE_OUTCOME_H

#include "cli/rehearse/drive.h"

/* How a rehearsal went, from its end and its events. */
enum rehearse_outcome {
    REHEARSE_RUNS,
    REHEARSE_RUNS_SHORT, /* something was refused, and the program goes on without it */
    REHEARSE_RUNS_OUT,   /* something was refused, and the program ended or fails its requests */
    REHEARSE_FAILS,      /* the program failed by itself */
    REHEARSE_UNDECIDED,  /* stuck or interrupted */
    REHEARSE_RUNS_ON     /* worked on with what memory it had when it was ended */
};

enum rehearse_outcome rehearse_outcome_of(struct mt_rehearsal *rehearsal,
                                          const struct rehearse_drive_report *report);

#endif
