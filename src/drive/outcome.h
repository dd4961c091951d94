/* SPDX-License-Identifier: MIT */
/* How a rehearsal went. */
#ifndef DRIVE_OUTCOME_H
#define DRIVE_OUTCOME_H

#include "serve.h"

/* How a rehearsal went, from its end and its events. */
enum mt_drive_outcome {
    MT_DRIVE_RUNS,
    MT_DRIVE_RUNS_SHORT, /* something was refused, and the program goes on without it */
    MT_DRIVE_RUNS_OUT,   /* something was refused, and the program ended or fails its requests */
    MT_DRIVE_FAILS,      /* the program failed by itself */
    MT_DRIVE_UNDECIDED,  /* stuck or interrupted */
    MT_DRIVE_RUNS_ON     /* worked on with what memory it had when it was ended */
};

enum mt_drive_outcome mt_drive_outcome_of(struct mt_rehearsal *rehearsal,
                                          const struct mt_drive_report *report);

#endif
