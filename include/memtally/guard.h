/* SPDX-License-Identifier: MIT */
/* A running program that is kept below a limit of host memory: asked to give memory back, then
 * stopped, then ended in an orderly way, before the kernel kills it.
 *
 *     struct mt_guard_options options = {.argv = argv, .environment = environ, .signal = SIGUSR1,
 *                                        .limit_bytes = (uint64_t)2 << 30};
 *     if (mt_guard_start(&options, &guard, &error) == MT_OK) {
 *         do
 *             mt_guard_wait(guard, &status);
 *         while (status.running);
 *         mt_guard_finish(guard, &result);
 *     }
 *
 * A guard belongs to one thread, and to a process that has no other children (see
 * <memtally/job.h>). Where a control group can be made for the program, the kernel lets it wait at
 * the limit and does not kill it; elsewhere a program that grows by its limit between two looks is
 * past it. No kernel holds a program to a part of a device: what it takes there is looked at ten
 * times a second, as the driver tells it, and the same steps are taken. */
#ifndef MEMTALLY_GUARD_H
#define MEMTALLY_GUARD_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/job.h>
#include <memtally/monitor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

/* What a guard does, in this order. */
enum mt_guard_step {
    MT_GUARD_CALL,   /* the caller's function */
    MT_GUARD_SIGNAL, /* to the program, which gives memory back */
    MT_GUARD_ASK,    /* the caller's function that asks the program's server */
    MT_GUARD_FREEZE, /* all its processes stand still */
    MT_GUARD_END,    /* SIGTERM to the program, with more room to end in */
    MT_GUARD_KILL,   /* SIGKILL to all its processes */
    MT_N_GUARD_STEPS
};

/* The name of a step ("freeze"). Borrowed, static. */
const char *mt_guard_step_name(enum mt_guard_step step);

/* Zeros are the defaults. */
struct mt_guard_options {
    char *const *argv;        /* NULL: `pid` is guarded */
    char *const *environment; /* of the program; ends with NULL */
    int pid;                  /* of a program that runs, guarded with its descendants */
    uint64_t limit_bytes;     /* of the host; 0: none, where devices are limited */
    const struct mt_job_device
        *devices;       /* limits of NVIDIA's devices, for a program that is started */
    size_t n_devices;   /* at most MT_JOB_DEVICES */
    double act_ratio;   /* of a limit, where steps begin; 0: 0.85 */
    uint64_t grace_ns;  /* from a call, a signal or a question to the next step; 0: 2 s */
    uint64_t freeze_ns; /* that the program stands still; 0: this step is left out */
    uint64_t end_ns;    /* from SIGTERM to SIGKILL; 0: 10 s */
    int signal;         /* 0: this step is left out */
    void (*call)(void *context, uint64_t used_bytes); /* must not wait; NULL: it is left out */
    /* May wait, but not for ever: a thread of the guard's calls it, and mt_guard_finish() waits for
     * it. It is not called again before it has returned. NULL: this step is left out. */
    void (*ask)(void *context, uint64_t used_bytes);
    void *context;
};

#define MT_GUARD_HOST (-1)

/* A step that was taken. */
struct mt_guard_act {
    enum mt_guard_step step;
    int device;           /* whose limit was near, as NVML counts, or MT_GUARD_HOST */
    uint64_t elapsed_ns;  /* since the start */
    uint64_t limit_bytes; /* of that place */
    uint64_t used_bytes;  /* just before */
    uint64_t least_bytes; /* used at least until the next step, or until the end */
};

#define MT_GUARD_ACTS 64

struct mt_guard_status {
    int running;
    uint64_t used_bytes; /* of its group without page cache that can be dropped, else resident */
    size_t n_acts;       /* so far */
    size_t n_leaks;      /* alarms so far: what it uses of the host grows without end */
    struct mt_monitor_growth growth; /* of that; full is where it is at its limit */
};

struct mt_guard_result {
    struct mt_job_result job; /* all zero for a `pid`, whose end is not told to us */
    int is_held;              /* by a control group */
    uint64_t peak_bytes;      /* used, that was seen */
    size_t n_looks;
    size_t n_alarms; /* that the kernel gave, so that a look came sooner */
    size_t n_acts;   /* of which the last MT_GUARD_ACTS are told, oldest first */
    struct mt_guard_act acts[MT_GUARD_ACTS];
};

struct mt_guard;

/* Starts the program, or finds the one that runs. On success the caller owns *guard;
 * mt_guard_finish() ends it. Errors: MT_EARG (neither or both, no limit, a ratio outside 0 to 1, a
 * device's limit for a program that runs), MT_ENOTFOUND (no such program, process or device),
 * MT_EPERM, MT_EIO, MT_ENOMEM. */
int mt_guard_start(const struct mt_guard_options *options, struct mt_guard **guard,
                   struct mt_error *error);

/* Waits until it is time to look, looks and does what is due. That is a tenth of a second at most
 * and less near the limit; a second where the kernel tells when the program's group comes near it.
 * Stalls of the machine that the kernel tells are waited for too. */
void mt_guard_wait(struct mt_guard *guard, struct mt_guard_status *status);

/* The process id of the guarded program. */
int mt_guard_pid(const struct mt_guard *guard);

/* The job of a guarded program, for mt_job_signal(). Borrowed; NULL where `pid` is guarded. */
struct mt_job *mt_guard_job(const struct mt_guard *guard);

/* The newest `capacity` steps, oldest first. Returns how many. */
size_t mt_guard_acts(const struct mt_guard *guard, struct mt_guard_act *acts, size_t capacity);

/* Waits for the end of a program that was started, guarding it no more, and frees the guard. A
 * program that was found goes on if it runs. */
void mt_guard_finish(struct mt_guard *guard, struct mt_guard_result *result);

#ifdef __cplusplus
}
#endif
#endif
