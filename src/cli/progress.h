/* SPDX-License-Identifier: MIT */
/* The progress line: one line on a terminal's stderr, redrawn in place, and nothing elsewhere. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdint.h>

#include "cli/console.h"

struct cli_progress {
    struct cli_terminal terminal;
    int drawn;
    uint64_t drawn_ns; /* when, by the monotonic clock */
};

/* Looks at stderr. `wanted` 0 keeps it silent. */
void cli_progress_init(struct cli_progress *progress, int wanted);

/* Redraws the line, cut to the terminal's width; at most ten times a second. */
void cli_progress_show(struct cli_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Clears the line. Do so before anything else is written to stderr. */
void cli_progress_clear(struct cli_progress *progress);

#endif
