/* SPDX-License-Identifier: MIT */
/* Where an engine is run: what a session asks for, of this machine or of a container. */
#ifndef DRIVE_RUNNER_H
#define DRIVE_RUNNER_H

struct mt_run_options; /* all of <memtally/run.h> */
struct mt_run_result;
struct mt_run_status;

/* Functions are as mt_run_*() of <memtally/run.h>, one run at a time. */
struct mt_profile_runner {
    void *context;
    int (*start)(void *context, const struct mt_run_options *options, struct mt_error *error);
    uint64_t (*began_ns)(void *context);
    int (*poll)(void *context, int timeout_ms, struct mt_run_status *status,
                struct mt_error *error);
    void (*signal)(void *context, int signal);
    int (*finish)(void *context, void (*progress)(void *context, double share),
                  void *progress_context, struct mt_run_result *result, struct mt_error *error);
    void (*abandon)(void *context); /* nothing where none runs */
    /* Called in the thread that asks the engine, before it does; NULL for nothing to do. */
    void (*enter)(void *context);
    int is_elsewhere; /* signals of the terminal do not reach the engine */
};

#endif
