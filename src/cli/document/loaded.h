/* SPDX-License-Identifier: MIT */
/* A recording with everything that a document shows of it. */
#ifndef CLI_LOADED_H
#define CLI_LOADED_H

#include <memtally/recording.h>
#include <memtally/tally.h>

#include "cli/document/document.h"

/* Start with {0}. The members are owned; `document` borrows from them. */
struct cli_loaded {
    struct mt_recording *recording; /* NULL of a snapshot of PyTorch's allocator */
    struct mt_tally *tally;
    struct mt_timeline_point *timeline;
    struct mt_device_timeline *device_timelines;
    size_t n_device_timelines;
    struct mt_device_histories *histories;
    struct mt_stack_list *stacks;
    struct mt_recording_damage damage;
    char unseen[256]; /* a note on what could not be seen from outside */
    const char *notes[1];
    struct cli_document document;
};

/* What to take out of a recording. `stacks_limit` counts where `stacks` is set; 0 is all. */
struct cli_load_options {
    struct mt_moment moment;
    int stacks;
    size_t stacks_limit;
    int histories;
    int is_told;  /* a server's words on it follow */
    int is_model; /* it is known to be of an engine that had a model */
};

/* Opens the recording, or the snapshot of PyTorch's allocator, `path` and fills in the document.
 * Returns 0 or the error of the library. */
int cli_load(struct cli_loaded *loaded, const char *path, const struct cli_load_options *options,
             struct mt_error *error);

void cli_unload(struct cli_loaded *loaded);

#endif
