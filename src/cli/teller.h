/* SPDX-License-Identifier: MIT */
/* What a drive says, on standard error: the line of progress, and what the program writes. */
#ifndef CLI_TELLER_H
#define CLI_TELLER_H

#include "cli/progress.h"
#include "drive/listener.h"

struct cli_teller {
    struct mt_drive_listener listener; /* hand this on; refers to the teller */
    struct cli_progress progress;
    int is_within_line; /* the program has not ended its last line */
};

void cli_teller_init(struct cli_teller *teller, int shows_progress, int shows_output);

/* Ends the program's last line, and takes the line of progress back. */
void cli_teller_finish(struct cli_teller *teller);

#endif
