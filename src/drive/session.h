/* SPDX-License-Identifier: MIT */
/* A session: the engine runs under the recorder, is watched, and is ended when it has done its
 * work, fails, hangs, or the user wants to stop. */
#ifndef DRIVE_SESSION_H
#define DRIVE_SESSION_H

#include <memtally/run.h>
#include <signal.h>

#include "listener.h"
#include "output_reader.h"
#include "profile.h"
#include "runner.h"

/* The last signal that came, and whether the engine got it too: what the kernel sends for the
 * terminal goes to all of its foreground processes. */
struct mt_profile_signals {
    volatile sig_atomic_t caught; /* 0: none; the session takes it */
    volatile sig_atomic_t from_terminal;
};

struct mt_profile_session_options {
    const char *directory;                  /* of the recording and of engine.log */
    char *const *environment;               /* of the engine; ends with NULL */
    const char *recorder_path;              /* NULL: watch from outside only */
    const struct mt_profile_runner *runner; /* NULL: this machine */
    enum mt_depth depth;
    enum mt_stacks stacks;
    double picture_share;    /* as in struct mt_run_options */
    const char *python_site; /* likewise */
    int tells_layers;        /* likewise */
    int tells_operations;
    void (*poll)(void *context); /* called now and then while the engine runs, or NULL */
    void *poll_context;
    int keep; /* the recording is of use even where the profile fails */
    const struct mt_drive_listener *listener; /* or NULL */
    struct mt_profile_signals *signals;       /* that the caller catches; or NULL */
};

struct mt_profile_outcome {
    struct mt_run_result result;
    uint64_t start_ns; /* time 0 of the recording, of CLOCK_MONOTONIC */
    int interrupted;   /* the signal that the user stopped us with, or 0 */
    int ended_by_us;   /* with a signal */
    int recorded;      /* there is a recording */
    char tail[MT_PROFILE_TAIL_LINES][MT_PROFILE_TAIL_TEXT]; /* what the engine printed last */
    size_t n_tail;
};

/* Runs the engine of `job` to its end. What went wrong with the engine's work is in the job's
 * journal. Errors: as mt_run_start(), and MT_EIO. */
int mt_profile_session_run(struct mt_profile_job *job,
                           const struct mt_profile_session_options *options,
                           struct mt_profile_outcome *outcome, struct mt_error *error);

#endif
