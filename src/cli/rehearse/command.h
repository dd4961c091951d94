/* SPDX-License-Identifier: MIT */
/* 'memtally rehearse -- CMD': a program is rehearsed, and what came of it is written. */
#ifndef CLI_REHEARSE_COMMAND_H
#define CLI_REHEARSE_COMMAND_H

#include "cli/document/document.h"
#include "cli/rehearse/limit.h"
#include "cli/rehearse/placed.h"
#include "drive/job.h"

/* The command on a program's command line: `job` is run, written to `path` and judged. Returns the
 * exit code (command.c). */
struct rehearse_output {
    enum cli_format format;
    const char *path; /* NULL: standard output */
    int explain;
    int with_changes;                     /* look for flags that fit where it does not */
    struct rehearse_bounds *bounds;       /* of devices; the answer adds to its file */
    const struct rehearse_placed *placed; /* what was expected; NULL: nothing */
};
int rehearse_answer_command(struct mt_drive_job *job, const struct mt_predict_settings *settings,
                            const struct rehearse_output *output);

#endif
