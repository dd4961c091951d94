/* SPDX-License-Identifier: MIT */
/* What a program may take of each device at most, whatever the device has. */
#ifndef CLI_REHEARSE_LIMIT_H
#define CLI_REHEARSE_LIMIT_H

#include <memtally/tally.h>

#include "base/strbuf.h"
#include "drive/job.h"

/* How many devices held more than `limit_bytes` at their peaks. Writes to *out what the one that
 * held most of them held, for what, and, of a CUDA program, which allocation passes the limit: the
 * program is run once more, on devices that have no more. */
size_t rehearse_limit_tell(const struct mt_drive_job *job, const struct mt_drive_result *result,
                           const struct mt_tally *tally, uint64_t limit_bytes,
                           struct mt_strbuf *out);

#endif
