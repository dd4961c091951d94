/* SPDX-License-Identifier: MIT */
/* What a program may take of each device at most, whatever the device has: a limit, and the peaks
 * that a file keeps of the same command line. */
#ifndef CLI_REHEARSE_LIMIT_H
#define CLI_REHEARSE_LIMIT_H

#include <stddef.h>
#include <stdint.h>

#include "advise/baseline.h"
#include "base/strbuf.h"
#include "drive/job.h"
#include "drive/rehearsed.h"

struct mt_error; /* <memtally/error.h> */

struct rehearse_bounds {
    uint64_t limit_bytes; /* of each device; 0: none */
    const char *path;     /* of the baseline, borrowed; NULL: none */
    double tolerance_ratio;
    struct mt_strbuf text; /* of the file */
    struct mt_strbuf name; /* the command line */
    struct mt_baseline baseline;
};

/* Reads the baseline at bounds->path, where it is set and the file is there, for a command line.
 * Errors: MT_EARG (a command line that cannot be a name), MT_EFORMAT, MT_EIO, MT_ENOMEM. */
int rehearse_baseline_read(struct rehearse_bounds *bounds, char *const *argv,
                           struct mt_error *error);

/* Adds the peaks of a command line that the baseline does not have, and sets *is_added. */
int rehearse_baseline_keep(struct rehearse_bounds *bounds, const struct mt_tally *tally,
                           int *is_added, struct mt_error *error);

void rehearse_bounds_finish(struct rehearse_bounds *bounds);

/* The most that a run may take of a place, MT_UNKNOWN where nothing bounds it. */
uint64_t rehearse_bounds_most_bytes(const struct rehearse_bounds *bounds, const char *place);

/* What was beyond. */
struct rehearse_excess {
    struct mt_strbuf reason; /* of the fullest device: how much more than what; one sentence */
    struct mt_strbuf note;   /* what it held, what else was beyond, who asked */
    struct mt_rehearsed_excess *list;
    size_t n;
};

/* Holds the peaks of a run against its bounds. Of a CUDA program it says which allocation passes
 * them: the program is run once more, on devices that have no more. Returns 0 or MT_ENOMEM. */
int rehearse_bounds_tell(const struct mt_drive_job *job, const struct mt_drive_result *result,
                         const struct mt_tally *tally, const struct rehearse_bounds *bounds,
                         struct rehearse_excess *excess);

void rehearse_excess_finish(struct rehearse_excess *excess);

#endif
