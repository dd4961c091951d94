/* SPDX-License-Identifier: MIT */
/* Reading what an engine prints, in a thread, so that the engine never waits for us.
 *
 * Lines that its driver does not take go to a log file; the last of them are kept to be shown when
 * the engine fails. */
#ifndef DRIVE_OUTPUT_READER_H
#define DRIVE_OUTPUT_READER_H

#include <stdio.h>

#include "lines.h"
#include "profile.h"

#define MT_PROFILE_TAIL_LINES 6
#define MT_PROFILE_TAIL_TEXT  160

struct mt_profile_reader {
    struct mt_profile_job *job;
    int streams[2]; /* ends to read from, by enum mt_profile_stream; -1 once at their end */
    int writers[2]; /* ends for the engine */
    int wake[2];    /* tells the thread to take what is there and end */
    FILE *log;
    struct mt_profile_lines lines[2];
    enum mt_profile_stream current;
    uint64_t arrived_ns;
    char tail[MT_PROFILE_TAIL_LINES][MT_PROFILE_TAIL_TEXT];
    size_t n_tail; /* lines that were logged at all */
    pthread_t thread;
    int running;
};

/* Makes the pipes. reader->writers are to be given to the engine. Errors: MT_EIO. */
int mt_profile_reader_open(struct mt_profile_reader *reader, struct mt_profile_job *job,
                           struct mt_error *error);

/* Closes our copies of the engine's ends and starts to read. Errors: MT_EIO, MT_EPERM (the log
 * cannot be made). */
int mt_profile_reader_start(struct mt_profile_reader *reader, const char *log_path,
                            struct mt_error *error);

/* Takes what is still there and ends the thread. */
void mt_profile_reader_stop(struct mt_profile_reader *reader);

/* Closes everything. Also after a failed open. */
void mt_profile_reader_close(struct mt_profile_reader *reader);

#endif
