/* SPDX-License-Identifier: MIT */
/* A program that is held to the memory that was reserved for it, and what it leaves behind.
 *
 *     struct mt_job_options options = {.argv = argv, .environment = environ, .host_bytes = 2 << 30,
 *                                      .stdout_fd = -1, .stderr_fd = -1};
 *     if (mt_job_start(&options, &job, &error) == MT_OK) {
 *         do
 *             mt_job_wait(job, 100, &status);
 *         while (status.running);
 *         mt_job_finish(job, &result);
 *     }
 *
 * A job belongs to one thread. From its start on the calling process is the subreaper of what
 * programs leave behind. Several jobs may run at a time where each is apart; a process that runs
 * one which is not should have no other children, whose ends the job would take. */
#ifndef MEMTALLY_JOB_H
#define MEMTALLY_JOB_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/budget.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

#define MT_JOB_DEVICES 16
#define MT_JOB_LEFT    8 /* processes that are named */

/* Host memory and NVIDIA's devices of this machine, as places of a budget: "host", "gpu0". */
#define MT_JOB_PLACES 65
struct mt_job_machine {
    size_t n;
    struct mt_budget_place places[MT_JOB_PLACES]; /* the host first; names last as long as this */
    char names[MT_JOB_PLACES][16];
};

/* What this machine has and has free now. Of the host that is what the kernel calls available, or
 * what the caller's control group still lets it have. `visible` is CUDA_VISIBLE_DEVICES, or NULL:
 * devices that it hides are left out. Takes a millisecond, and more where there is a driver.
 * Errors: MT_EUNSUPPORTED (no /proc), MT_EPERM. */
int mt_job_look(struct mt_job_machine *machine, const char *visible, struct mt_error *error);

/* How the host's memory is held to a job's `host_bytes`. */
enum mt_job_cap {
    MT_JOB_CAP_AUTO,   /* by a control group, else by RLIMIT_DATA */
    MT_JOB_CAP_GROUP,  /* all its processes together, swap among it */
    MT_JOB_CAP_RLIMIT, /* RLIMIT_DATA: private memory of each process by itself */
    MT_JOB_CAP_WATCH,  /* who is seen past it is killed; devices too */
    MT_JOB_CAP_NONE
};

struct mt_job_device {
    unsigned index; /* of NVML */
    uint64_t bytes; /* that it may take: the recorder or MT_JOB_CAP_WATCH holds it to that */
};

struct mt_job_options {
    char *const *argv;        /* NULL-terminated; argv[0] is looked up in PATH */
    char *const *environment; /* ends with NULL */
    const char *directory;    /* it starts in; NULL: the caller's */
    enum mt_job_cap cap;
    uint64_t host_bytes; /* 0: as much as it likes */
    int waits_at_cap;    /* in a group it waits there for more room, and is not killed */
    const struct mt_job_device *devices;
    size_t n_devices; /* at most MT_JOB_DEVICES */
    /* libmemtally-record.so, no space or colon in it, is preloaded into the job's processes, and
     * refuses what is past a device's bytes as CUDA's driver refuses it. It counts what they take
     * by calls of the driver, and what that itself takes beside as far as NVML tells. NULL: it is
     * not.
     */
    const char *recorder_path;
    int is_apart;  /* in a process group of its own, with nothing on standard input; what it
                      leaves running is killed */
    int stdout_fd; /* -1: the caller's */
    int stderr_fd;
};

struct mt_job_status {
    int running; /* the program itself */
    uint64_t elapsed_ns;
    uint64_t host_bytes; /* resident now, in all its processes; pages that they share count often */
    uint64_t device_bytes[MT_JOB_DEVICES]; /* MT_UNKNOWN where the driver does not say */
};

struct mt_job_left {
    int pid;
    char name[64];
    uint64_t bytes; /* resident */
};

struct mt_job_result {
    int exit_code; /* of the program, or 128 + signal */
    int signal;    /* that killed it, or 0 */
    uint64_t wall_ns;
    enum mt_job_cap cap;      /* that it had: never MT_JOB_CAP_AUTO */
    int is_past_cap;          /* it was refused or killed for its cap, as far as that shows */
    uint64_t host_peak_bytes; /* resident: of the largest process, or the largest sum seen */
    uint64_t device_peak_bytes[MT_JOB_DEVICES]; /* largest that was seen; 0: nothing was */
    uint64_t n_device_refusals;                 /* by the recorder */
    struct mt_job_left left[MT_JOB_LEFT];       /* processes that live on a second after its end */
    size_t n_left;                              /* of them in all */
    uint64_t left_bytes;                        /* of the host, in those */
    uint64_t left_shared_bytes; /* shared memory that nobody maps; MT_UNKNOWN without a group */
    uint64_t left_device_bytes[MT_JOB_DEVICES]; /* of those processes, by the driver */
};

struct mt_job;

/* Starts the program. On success the caller owns *job, mt_job_finish() ends it. Errors:
 * MT_ENOTFOUND (no such program), MT_EPERM (it cannot be run), MT_EUNSUPPORTED (the cap cannot be
 * had here, or the recorder cannot enter the program; the text says what would help), MT_EARG,
 * MT_EIO, MT_ENOMEM. */
int mt_job_start(const struct mt_job_options *options, struct mt_job **job, struct mt_error *error);

/* Waits at most `timeout_ms` for the program's end, and looks what it takes. */
void mt_job_wait(struct mt_job *job, int timeout_ms, struct mt_job_status *status);

/* Sends a signal to the program, to all of its process group where it is apart. Safe in a signal
 * handler. */
int mt_job_signal(const struct mt_job *job, int signal);

/* Waits for the program, looks what it left behind, and frees the job. */
void mt_job_finish(struct mt_job *job, struct mt_job_result *result);

/* Whether a cap can be enforced here. Errors: MT_EUNSUPPORTED, whose text says what would help. */
int mt_job_can_cap(enum mt_job_cap cap, struct mt_error *error);

/* The name of a cap ("group"). Borrowed, static. Any thread. */
const char *mt_job_cap_name(enum mt_job_cap cap);

#ifdef __cplusplus
}
#endif
#endif
