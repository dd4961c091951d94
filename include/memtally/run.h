/* SPDX-License-Identifier: MIT */
/* Running a program under the recorder and watching its process tree from outside; watching one
 * that already runs (mt_attach_start(), to which the next paragraph does not apply).
 *
 * One run object belongs to one thread. While it exists, the calling process is the subreaper of
 * the processes that the program leaves behind, and takes their ends. Children that it had before
 * are left alone; those that it starts meanwhile pass for the run's. So a process should watch one
 * run at a time and start nothing else. A SIGCHLD that is ignored is not during the run. All of
 * this is as before when the run is finished or abandoned. */
#ifndef MEMTALLY_RUN_H
#define MEMTALLY_RUN_H

#include <stdint.h>

#include <memtally/depth.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */
struct mt_run;

struct mt_run_options {
    const char *directory;     /* recording folder; made if absent, must not hold a recording */
    const char *recorder_path; /* libmemtally-record.so, no space or colon in it; NULL: watch from
                                  outside only */
    const char *python_site;   /* folder of sitecustomize.py, to see what PyTorch does; NULL: Python
                                  is left alone */
    int tells_layers;          /* of models: what each layer holds and takes */
    int tells_operations;      /* of PyTorch: what each operator takes */
    enum mt_depth depth;
    enum mt_stacks stacks;
    double picture_share;     /* of run time that pictures may take; 0 means 0.02 */
    char *const *argv;        /* NULL-terminated; argv[0] is looked up in its PATH */
    char *const *environment; /* of the program, mostly environ; ends with NULL */
    int stdout_fd;            /* the program's standard output, or -1: the caller's */
    int stderr_fd;            /* the program's standard error, or -1: the caller's */
};

/* The state of a run at one look. */
struct mt_run_status {
    int running; /* 1 until the program has ended */
    uint64_t elapsed_ns;
    uint64_t resident_bytes; /* of the whole tree */
    uint64_t n_processes;
};

struct mt_run_result {
    int exit_code; /* of the program, or 128 + signal */
    int signal;    /* that killed it, or 0 */
    uint64_t wall_ns;
    uint64_t peak_resident_bytes; /* largest sum over the tree that was seen from outside */
};

/* Starts the program. On success *run is owned by the caller; end it with mt_run_finish() or
 * mt_run_abandon().
 * Errors: MT_ENOTFOUND (no such program; nothing was started), MT_EPERM (not executable, or the
 * folder cannot be written), MT_EBUSY (the folder holds a recording), MT_EARG (no folder, no
 * program, or a recorder that cannot be preloaded), MT_EIO, MT_ENOMEM. After an error there is
 * neither a recording nor a folder that was not there before. */
int mt_run_start(const struct mt_run_options *options, struct mt_run **run, struct mt_error *error);

struct mt_attach_options {
    const char *directory; /* recording folder; made if absent, must not hold a recording */
    int pid;
    const char *group;    /* NULL, or a word: processes whose control groups have it in their names
                             are watched too, as a container's id; where none has, those that count
                             processes as `pid` does, if the caller does not */
    double picture_share; /* of the time that it is watched; 0 means 0.003 */
};

/* Watches a process that already runs, and its descendants. Nothing of them is stopped, written to
 * or changed, and the caller becomes nobody's parent: their ends are seen, their statuses are not.
 * The caller itself is left out where it is a descendant. On success *run is owned by the caller:
 * call mt_run_poll() as of a run, and end it with mt_run_finish(), which does not wait, or with
 * mt_run_abandon(), which leaves the processes alone.
 * Errors: MT_ENOTFOUND (no such process, or it has ended), MT_EUNSUPPORTED (no /proc, or the
 * process has no memory of its own, as a thread of the kernel), MT_EBUSY, MT_EPERM, MT_EIO (the
 * folder), MT_EARG, MT_ENOMEM. After an error the folder is as it was. */
int mt_attach_start(const struct mt_attach_options *options, struct mt_run **run,
                    struct mt_error *error);

/* The program's process id. It stays valid until mt_run_finish() or mt_run_abandon(). */
int mt_run_pid(const struct mt_run *run);

/* Watches for at most `timeout_ms`, returning early when the program has ended. Call it in a loop:
 * samples and pictures from outside are taken here. *status is set also on failure.
 * Errors: MT_EIO (the recording cannot be written; the program goes on). */
int mt_run_poll(struct mt_run *run, int timeout_ms, struct mt_run_status *status,
                struct mt_error *error);

/* When the recording starts: CLOCK_MONOTONIC in nanoseconds. Times of the recording count from
 * here. */
uint64_t mt_run_began_ns(const struct mt_run *run);

/* Writes a mark called `name` into the recording, now. */
void mt_run_mark(struct mt_run *run, const char *name);

/* Sends `signal` to the program. Safe in a signal handler. */
int mt_run_signal(const struct mt_run *run, int signal);

/* Takes the run's end: waits for the program, gives processes that it left behind a second to end,
 * compacts and compresses the recording, frees the object. What a process records that is still
 * alive then stays as it is. `progress` (may be NULL) is called with a share done between 0 and 1
 * while it compacts. The object is freed whatever the result; the recording stays readable
 * uncompressed if compacting fails. Errors: MT_EIO, MT_ENOMEM. */
int mt_run_finish(struct mt_run *run, void (*progress)(void *context, double share), void *context,
                  struct mt_run_result *result, struct mt_error *error);

/* Kills all that still runs of the tree, leaves the recording as it is and frees the object. Takes
 * NULL. */
void mt_run_abandon(struct mt_run *run);

#ifdef __cplusplus
}
#endif
#endif
