/* SPDX-License-Identifier: MIT */
/* What a drive says, on standard error. */
#include "cli/teller.h"

#include <stdio.h>

static void end_line(struct cli_teller *teller)
{
    if (teller->is_within_line)
        fputc('\n', stderr);
    teller->is_within_line = 0;
}

/* The program's own line is not written over while the program has not ended it. */
static void show_progress(void *argument, const char *line)
{
    struct cli_teller *teller = argument;
    if (!line) {
        cli_teller_finish(teller);
        return;
    }
    if (!teller->is_within_line)
        cli_progress_show(&teller->progress, "%s", line);
}

static void show_output(void *argument, const char *text, size_t length)
{
    struct cli_teller *teller = argument;
    if (length == 0)
        return;
    cli_progress_clear(&teller->progress);
    fwrite(text, 1, length, stderr);
    fflush(stderr);
    teller->is_within_line = text[length - 1] != '\n';
}

void cli_teller_init(struct cli_teller *teller, int shows_progress, int shows_output)
{
    *teller = (struct cli_teller){.listener = {.argument = teller,
                                               .progress = show_progress,
                                               .output = shows_output ? show_output : NULL}};
    cli_progress_init(&teller->progress, shows_progress);
}

void cli_teller_finish(struct cli_teller *teller)
{
    end_line(teller);
    cli_progress_clear(&teller->progress);
}
