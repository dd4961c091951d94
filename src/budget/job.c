/* SPDX-License-Identifier: MIT */
/* One program from its cap to what it left behind (include/memtally/job.h). */
#include "budget/job.h"

#include <memtally/units.h>

#include "base/environment.h"
#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_NS    1000000000u /* that processes have to end after the program */
#define DEVICES_NS  100000000u
#define GRACE_MS    20
#define NEAR_SHARES 20u /* refused at most a twentieth below the cap */

const char *mt_job_cap_name(enum mt_job_cap cap)
{
    static const char *const names[] = {"auto", "group", "rlimit", "watch", "none"};
    return (unsigned)cap < sizeof names / sizeof *names ? names[cap] : "?";
}

int mt_job_can_cap(enum mt_job_cap cap, struct mt_error *error)
{
    struct mt_group_os os;
    mt_group_os_init(&os);
    return cap == MT_JOB_CAP_GROUP ? mt_group_try(&os, error) : 0;
}

static uint64_t now_ns(const struct mt_job *job)
{
    return job->os.host.now_ns(job->os.host.context);
}

/* ---- start ---- */

static int cap_by_group(struct mt_job *job, struct mt_error *error)
{
    int status = mt_group_make(&job->os, (unsigned)(job->start_ns / 1000), &job->group, error);
    if (status == 0)
        status = job->waits_at_cap ? mt_group_wait_at(&job->os, &job->group, job->host_bytes, error)
                                   : mt_group_limit(&job->os, &job->group, job->host_bytes, error);
    if (status < 0 && job->group.version) {
        mt_group_remove(&job->os, &job->group);
        job->group.version = 0;
    }
    return status;
}

static int set_cap(struct mt_job *job, struct mt_error *error)
{
    int status = 0;
    if (!job->host_bytes && job->cap != MT_JOB_CAP_WATCH)
        job->cap = MT_JOB_CAP_NONE;
    if (job->cap == MT_JOB_CAP_GROUP)
        status = cap_by_group(job, error);
    if (job->cap == MT_JOB_CAP_AUTO)
        job->cap = cap_by_group(job, NULL) == 0 ? MT_JOB_CAP_GROUP : MT_JOB_CAP_RLIMIT;
    return status;
}

static void free_job(struct mt_job *job)
{
    mt_job_end_caps(job, NULL);
    if (job->has_nvml)
        mt_nvml_stop(&job->nvml);
    mt_process_list_finish(&job->tree);
    free(job->users);
    free(job->pids);
    free(job);
}

static int check(const struct mt_job_options *options, struct mt_error *error)
{
    if (!options->argv || !options->argv[0] || !options->environment)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "name a program to run");
    if (options->n_devices > MT_JOB_DEVICES)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "a job may have at most %d devices",
                       MT_JOB_DEVICES);
    return 0;
}

int mt_job_start(const struct mt_job_options *options, struct mt_job **job, struct mt_error *error)
{
    int status = check(options, error);
    struct mt_job *made = status < 0 ? NULL : calloc(1, sizeof *made);
    if (made)
        made->pids = malloc(MT_JOB_PIDS * sizeof *made->pids);
    if (status == 0 && (!made || !made->pids)) {
        free(made);
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a job");
    }
    if (status < 0)
        return status;
    mt_group_os_init(&made->os);
    made->cap = options->cap;
    made->is_apart = options->is_apart;
    made->host_bytes = options->host_bytes;
    made->waits_at_cap = options->waits_at_cap;
    made->n_devices = options->n_devices;
    if (options->n_devices)
        memcpy(made->devices, options->devices, options->n_devices * sizeof *options->devices);
    made->start_ns = now_ns(made);
    snprintf(made->mark, sizeof made->mark, "MEMTALLY_JOB=%d-%" PRIu64, made->os.pid,
             made->start_ns);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    status = set_cap(made, error);
    mt_job_open_devices(made);
    if (status == 0 && options->recorder_path && options->n_devices)
        status = mt_job_make_caps(made, mt_environment_temporary(options->environment), error);
    if (status == 0)
        status = mt_job_spawn(made, options, error);
    if (status < 0) {
        if (made->pid > 0)
            waitpid(made->pid, NULL, 0);
        if (made->group.version)
            mt_group_remove(&made->os, &made->group);
        free_job(made);
        return status;
    }
    *job = made;
    return 0;
}

/* ---- while it runs ---- */

int mt_job_signal(const struct mt_job *job, int signal)
{
    if (job->ended)
        return MT_ENOTFOUND;
    return kill(job->is_apart ? -job->pid : job->pid, signal) == 0 ? 0 : MT_EPERM;
}

static void reap(struct mt_job *job)
{
    struct rusage usage;
    int how;
    if (!job->ended && wait4(job->pid, &how, WNOHANG, &usage) == job->pid) {
        uint64_t most = (uint64_t)usage.ru_maxrss << 10;
        job->ended = 1;
        job->how = how;
        job->end_ns = now_ns(job);
        if (most > job->host_peak_bytes)
            job->host_peak_bytes = most;
    }
    /* What it left to us and has ended meanwhile. */
    while (job->ended && waitpid(job->is_apart ? -job->pid : -1, NULL, WNOHANG) > 0)
        ;
}

static void wait_for_end(const struct mt_job *job, int timeout_ms)
{
    int fd = (int)syscall(SYS_pidfd_open, job->pid, 0);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    poll(&end, fd >= 0, fd >= 0 || timeout_ms < GRACE_MS ? timeout_ms : GRACE_MS);
    if (fd >= 0)
        close(fd);
}

static int is_past(const struct mt_job *job, const struct mt_job_status *status)
{
    int past = job->host_bytes && status->host_bytes > job->host_bytes;
    for (size_t i = 0; i < job->n_devices; i++)
        past |= status->device_bytes[i] != MT_UNKNOWN &&
                status->device_bytes[i] > job->devices[i].bytes;
    return past;
}

/* The driver holds a lock of all its users while it tells who uses a device: it is asked ten times
 * a second at most. */
static void look_at_devices(struct mt_job *job, uint64_t bytes[MT_JOB_DEVICES])
{
    uint64_t now = now_ns(job);
    if (job->n_devices && now - job->devices_ns >= DEVICES_NS) {
        uint64_t held[MT_JOB_DEVICES];
        if (job->caps)
            mt_job_held(job, held);
        mt_job_device_bytes(job, job->device_bytes);
        if (job->caps)
            mt_job_tell_beside(job, held, job->device_bytes);
        job->devices_ns = now;
    }
    memcpy(bytes, job->device_bytes, sizeof job->device_bytes);
}

static void look(struct mt_job *job, struct mt_job_status *status)
{
    mt_job_find_processes(job);
    status->host_bytes = mt_job_resident(job);
    look_at_devices(job, status->device_bytes);
    if (status->host_bytes > job->host_peak_bytes)
        job->host_peak_bytes = status->host_bytes;
    for (size_t i = 0; i < job->n_devices; i++)
        if (status->device_bytes[i] != MT_UNKNOWN &&
            status->device_bytes[i] > job->device_peak_bytes[i])
            job->device_peak_bytes[i] = status->device_bytes[i];
    if (job->cap == MT_JOB_CAP_WATCH && is_past(job, status)) {
        job->is_past_cap = 1;
        for (size_t i = 0; i < job->n_pids; i++)
            kill(job->pids[i], SIGKILL);
    }
}

void mt_job_wait(struct mt_job *job, int timeout_ms, struct mt_job_status *status)
{
    struct mt_job_status now = {0};
    if (!job->ended)
        wait_for_end(job, timeout_ms);
    reap(job);
    look(job, &now);
    now.running = !job->ended;
    now.elapsed_ns = (job->ended ? job->end_ns : now_ns(job)) - job->start_ns;
    *status = now;
}

/* ---- its end ---- */

static void give_time_to_end(struct mt_job *job)
{
    const struct timespec moment = {.tv_nsec = GRACE_MS * 1000000};
    uint64_t until = now_ns(job) + GRACE_NS;
    for (;;) {
        reap(job);
        mt_job_find_processes(job);
        if (job->n_pids == 0 || now_ns(job) >= until)
            return;
        nanosleep(&moment, NULL);
    }
}

static void name_left(struct mt_job *job, struct mt_job_result *result)
{
    struct mt_process process;
    result->n_left = job->n_pids;
    result->left_bytes = mt_job_resident(job);
    mt_job_device_bytes(job, result->left_device_bytes);
    for (size_t i = 0; i < MT_JOB_DEVICES; i++)
        if (i >= job->n_devices || result->left_device_bytes[i] == MT_UNKNOWN)
            result->left_device_bytes[i] = 0;
    for (size_t i = 0; i < job->n_pids && i < MT_JOB_LEFT; i++) {
        struct mt_job_left *left = &result->left[i];
        left->pid = job->pids[i];
        left->bytes = mt_process_resident_bytes(&job->os.host, left->pid);
        if (mt_process_read(&job->os.host, left->pid, &process, NULL) == 0)
            memcpy(left->name, process.name, sizeof left->name);
    }
}

/* A program that is refused memory says so in its own way or dies of it; that it came near its cap
 * is what shows. */
static int was_near_cap(const struct mt_job *job, const struct mt_job_result *result)
{
    return result->exit_code != 0 && job->host_bytes && job->cap == MT_JOB_CAP_RLIMIT &&
           job->host_peak_bytes >= job->host_bytes - job->host_bytes / NEAR_SHARES;
}

static void read_group(struct mt_job *job, struct mt_job_result *result)
{
    struct mt_group_figures figures;
    if (!job->group.version)
        return;
    mt_group_read(&job->os, &job->group, &figures);
    if (figures.oom_kills != MT_UNKNOWN && figures.oom_kills > 0)
        result->is_past_cap = 1;
    if (job->n_pids == 0)
        result->left_shared_bytes = figures.shared_bytes;
}

static void end_left(struct mt_job *job)
{
    if (job->is_apart)
        for (size_t i = 0; i < job->n_pids; i++)
            kill(job->pids[i], SIGKILL);
    if (job->is_apart && job->n_pids)
        give_time_to_end(job);
    if (job->group.version)
        mt_group_remove(&job->os, &job->group);
}

void mt_job_finish(struct mt_job *job, struct mt_job_result *result)
{
    struct mt_job_status status;
    while (!job->ended)
        mt_job_wait(job, 100, &status);
    give_time_to_end(job);
    struct mt_job_result found = {.left_shared_bytes = MT_UNKNOWN, .cap = job->cap};
    found.signal = WIFSIGNALED(job->how) ? WTERMSIG(job->how) : 0;
    found.exit_code = found.signal ? 128 + found.signal : WEXITSTATUS(job->how);
    found.wall_ns = job->end_ns - job->start_ns;
    found.host_peak_bytes = job->host_peak_bytes;
    memcpy(found.device_peak_bytes, job->device_peak_bytes, sizeof found.device_peak_bytes);
    found.is_past_cap = job->is_past_cap || was_near_cap(job, &found);
    mt_job_end_caps(job, &found);
    name_left(job, &found);
    read_group(job, &found);
    end_left(job);
    free_job(job);
    *result = found;
}
