/* SPDX-License-Identifier: MIT */
/* The document of a profile: what the recording holds and what the journal says, put together. */
#ifndef CLI_PROFILE_RESULT_H
#define CLI_PROFILE_RESULT_H

#include "cli/document/loaded.h"
#include "drive/profile.h"

#define PROFILE_NAME_TEXT 32

/* Start with {0}. The document, loaded.document, points into the rest and into the job. */
struct profile_result {
    struct cli_loaded loaded;
    struct cli_document_engine engine;
    struct cli_document_model model;
    struct cli_document_settings settings;
    struct cli_document_run *runs;
    struct cli_document_phase *phases;
    char (*names)[PROFILE_NAME_TEXT]; /* of the phases */
    const char *notes[4];
};

/* Opens the recording in `directory`, takes its tally at the peak, and fills in the document.
 * `start_ns` is time 0 of the recording, of CLOCK_MONOTONIC. Nobody writes to the journal any more.
 * Errors: as cli_load(). */
int profile_result_make(struct mt_profile_job *job, const char *directory, uint64_t start_ns,
                        struct profile_result *result, struct mt_error *error);

/* Fills in engine, model, settings, runs and phases; the part that needs no recording.
 * Errors: MT_ENOMEM. */
int profile_result_describe(struct mt_profile_job *job, uint64_t start_ns,
                            struct profile_result *result, struct mt_error *error);

void profile_result_finish(struct profile_result *result);

#endif
