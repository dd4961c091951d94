/* SPDX-License-Identifier: MIT */
/* One program in the room that is held for it: its environment, its cap, its end. */
#ifndef CLI_BUDGET_HELD_RUN_H
#define CLI_BUDGET_HELD_RUN_H

#include <limits.h>

#include "cli/budget/admit.h"

/* What is left behind beyond this is told. */
#define BUDGET_LEFT_BYTES ((uint64_t)100 << 20)

struct budget_run {
    struct mt_job *job;
    struct rehearse_recorded *devices; /* pretended ones, or NULL */
    char **environment;                /* owned where `owned` is */
    char *owned[2];
    char recorder[PATH_MAX]; /* that holds real devices */
    size_t n_devices;
    char device_names[MT_JOB_DEVICES][8];
};

struct budget_end {
    struct mt_job_result job;
    size_t n_refusals; /* of devices */
    uint64_t device_peak_bytes[MT_JOB_DEVICES];
    uint64_t left_device_bytes[MT_JOB_DEVICES];
};

/* Starts the program of `options`, whose environment, cap, limits and devices are set here: the
 * devices that are held are those it sees, as 0, 1 and so on. Returns an exit status, having
 * complained where that is none of success. */
int budget_run_start(struct budget_run *run, const struct budget_world *world,
                     const struct budget_held *held, enum mt_job_cap cap,
                     struct mt_job_options *options);

/* Looks at it, as mt_job_wait() does, and at pretended devices. */
void budget_run_wait(struct budget_run *run, int timeout_ms, struct mt_job_status *status);

/* Ends it, as mt_job_finish() does. */
void budget_run_finish(struct budget_run *run, struct budget_end *end);

/* Appends sentences on what it left behind of more than BUDGET_LEFT_BYTES, by place. */
void budget_put_left(const struct budget_run *run, const struct budget_end *end,
                     struct mt_strbuf *out);

#endif
