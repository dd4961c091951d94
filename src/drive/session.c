/* SPDX-License-Identifier: MIT */
/* The session. Three threads share the work: this one watches the engine's memory and its life, one
 * reads what it prints, and one asks it where it is a service. */
#include "session.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <memtally/error_code.h>
#include <memtally/units.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "base/ticks.h"

#define SECOND_NS ((uint64_t)1000 * 1000 * 1000)
#define POLL_MS   20

/* An engine that fails often dies of the same cause in a moment. */
#define FAILURE_GRACE_NS (SECOND_NS / 2)
/* What it has to end when it is told to, and before it is given up after SIGKILL. */
#define END_GRACE_NS (5 * SECOND_NS)

/* ---- this machine ---- */

static int start_here(void *context, const struct mt_run_options *options, struct mt_error *error)
{
    struct mt_run **run = context;
    return mt_run_start(options, run, error);
}

static uint64_t began_here(void *context)
{
    struct mt_run **run = context;
    return mt_run_began_ns(*run);
}

static int poll_here(void *context, int timeout_ms, struct mt_run_status *status,
                     struct mt_error *error)
{
    struct mt_run **run = context;
    return mt_run_poll(*run, timeout_ms, status, error);
}

static void signal_here(void *context, int signal)
{
    struct mt_run **run = context;
    mt_run_signal(*run, signal);
}

static int finish_here(void *context, void (*progress)(void *context, double share),
                       void *progress_context, struct mt_run_result *result, struct mt_error *error)
{
    struct mt_run **run = context;
    struct mt_run *ended = *run;
    *run = NULL;
    return mt_run_finish(ended, progress, progress_context, result, error);
}

static void abandon_here(void *context)
{
    struct mt_run **run = context;
    mt_run_abandon(*run);
    *run = NULL;
}

/* ---- the session ---- */

/* A session that is under way. While `ending`, `next_signal` is sent at `next_ns`; after SIGKILL it
 * is 0, and at `next_ns` the engine is given up. */
struct watch {
    struct mt_profile_job *job;
    const struct mt_profile_runner *runner;
    int runs; /* the engine was started, and its end is not taken */
    struct mt_profile_outcome *outcome;
    const struct mt_profile_session_options *options;
    int ending;
    int next_signal;
    uint64_t next_ns;
    int given_up;
};

static void begin_end(struct watch *watch, int signal, uint64_t grace_ns)
{
    if (watch->ending)
        return;
    watch->ending = 1;
    watch->next_signal = signal;
    watch->next_ns = mt_monotonic_ns() + grace_ns;
}

static void step_end(struct watch *watch, uint64_t now_ns)
{
    if (!watch->ending || now_ns < watch->next_ns)
        return;
    if (watch->next_signal == 0) {
        watch->given_up = 1;
        return;
    }
    watch->runner->signal(watch->runner->context, watch->next_signal);
    watch->outcome->ended_by_us = 1;
    watch->next_signal = watch->next_signal == SIGKILL ? 0 : SIGKILL;
    watch->next_ns = now_ns + END_GRACE_NS;
}

/* We pass the first signal on; the second ends the engine at once. */
static void pass_signal(struct watch *watch)
{
    struct mt_profile_signals *signals = watch->options->signals;
    int signal = signals ? signals->caught : 0;
    if (signal == 0)
        return;
    signals->caught = 0;
    if (!watch->outcome->interrupted && (!signals->from_terminal || watch->runner->is_elsewhere))
        watch->runner->signal(watch->runner->context, signal);
    watch->next_ns = mt_monotonic_ns() + (watch->outcome->interrupted ? 0 : END_GRACE_NS);
    watch->next_signal = SIGKILL;
    watch->ending = 1;
    watch->outcome->ended_by_us = 1;
    watch->outcome->interrupted = signal;
}

static void show_progress(struct watch *watch, const struct mt_run_status *status,
                          const struct mt_profile_state *state)
{
    char resident[MT_SIZE_TEXT];
    mt_drive_say(watch->options->listener, "%5.1f s  %10s resident  %s",
                 (double)status->elapsed_ns / 1e9, mt_format_size(status->resident_bytes, resident),
                 state->doing);
}

static void judge(struct watch *watch, const struct mt_profile_state *state, uint64_t now_ns)
{
    uint64_t timeout_ns = watch->job->settings->timeout_ns;
    const struct mt_profile_driver *driver = watch->job->engine->driver;
    if (watch->ending)
        return;
    if (state->done && driver->drive)
        begin_end(watch, SIGTERM, 0);
    else if (state->failed)
        begin_end(watch, SIGTERM, FAILURE_GRACE_NS);
    else if (now_ns > state->progress_ns && now_ns - state->progress_ns > timeout_ns) {
        mt_profile_journal_fail(&watch->job->journal, MT_ETIMEOUT,
                                "%s made no progress for %" PRIu64
                                " s (phase: %s) and was ended; --timeout sets how long to wait",
                                driver->name, timeout_ns / SECOND_NS, state->doing);
        begin_end(watch, SIGTERM, 0);
    }
}

static int watch_engine(struct watch *watch, struct mt_error *error)
{
    struct mt_run_status status = {.running = 1};
    while (status.running && !watch->given_up) {
        int code = watch->runner->poll(watch->runner->context, POLL_MS, &status, error);
        if (code != MT_OK)
            return code;
        if (watch->options->poll)
            watch->options->poll(watch->options->poll_context);
        pass_signal(watch);
        struct mt_profile_state state = mt_profile_journal_look(&watch->job->journal);
        uint64_t now_ns = mt_monotonic_ns();
        judge(watch, &state, now_ns);
        step_end(watch, now_ns);
        show_progress(watch, &status, &state);
    }
    return MT_OK;
}

static void kill_children_of(const char *task)
{
    char path[PATH_MAX];
    int pid;
    snprintf(path, sizeof path, "/proc/self/task/%s/children", task);
    FILE *children = fopen(path, "re");
    while (children && fscanf(children, "%d", &pid) == 1)
        kill(pid, SIGKILL);
    if (children)
        fclose(children);
}

/* What an engine leaves behind when it ends becomes our child, and nobody needs it any more. The
 * dead ones among these children are taken by mt_run_finish(). */
static void end_leftovers(void)
{
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));)
        if (task->d_name[0] != '.')
            kill_children_of(task->d_name);
    if (tasks)
        closedir(tasks);
}

static void *drive(void *context)
{
    const struct watch *watch = context;
    if (watch->runner->enter)
        watch->runner->enter(watch->runner->context);
    watch->job->engine->driver->drive(watch->job);
    return NULL;
}

/* Threads that we start here leave the signals to this one. */
static int start_threads(struct watch *watch, struct mt_profile_reader *reader,
                         const char *log_path, pthread_t *driver, struct mt_error *error)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = mt_profile_reader_start(reader, log_path, error);
    if (code == MT_OK && watch->job->engine->driver->drive) {
        int failure = pthread_create(driver, NULL, drive, watch);
        if (failure)
            code = mt_fail_errno(error, failure, "cannot start a thread");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static int watch_and_join(struct watch *watch, struct mt_profile_reader *reader,
                          const char *log_path, struct mt_error *error)
{
    pthread_t driver;
    int code = start_threads(watch, reader, log_path, &driver, error);
    if (code != MT_OK)
        return code;
    code = watch_engine(watch, error);
    mt_profile_journal_close(&watch->job->journal);
    if (code != MT_OK || watch->given_up) {
        watch->runner->abandon(watch->runner->context);
        watch->runs = 0;
    }
    if (!watch->runner->is_elsewhere)
        end_leftovers();
    if (watch->job->engine->driver->drive)
        pthread_join(driver, NULL);
    mt_profile_reader_stop(reader);
    return code;
}

static void show_packing(void *context, double share)
{
    mt_drive_say(context, "packing the recording, %.0f %%", 100 * share);
}

/* Nobody will read this recording: packing it is not worth the time. */
static int finish_run(struct watch *watch, int keep, struct mt_error *error)
{
    const struct mt_profile_runner *runner = watch->runner;
    int runs = watch->runs;
    watch->runs = 0;
    if (!runs)
        return MT_OK;
    if (watch->outcome->interrupted && !keep) {
        runner->abandon(runner->context);
        return MT_OK;
    }
    int code =
        runner->finish(runner->context, show_packing, (void *)(uintptr_t)watch->options->listener,
                       &watch->outcome->result, error);
    watch->outcome->recorded = code == MT_OK;
    return code;
}

static void keep_tail(const struct mt_profile_reader *reader, struct mt_profile_outcome *outcome)
{
    size_t n = reader->n_tail < MT_PROFILE_TAIL_LINES ? reader->n_tail : MT_PROFILE_TAIL_LINES;
    for (size_t i = 0; i < n; i++)
        memcpy(outcome->tail[i], reader->tail[(reader->n_tail - n + i) % MT_PROFILE_TAIL_LINES],
               MT_PROFILE_TAIL_TEXT);
    outcome->n_tail = n;
}

static int start_run(struct watch *watch, const struct mt_profile_session_options *options,
                     const struct mt_profile_reader *reader, struct mt_error *error)
{
    struct mt_profile_command command = {0};
    int code = watch->job->engine->driver->command(watch->job, &command, error);
    if (code == MT_OK && command.failed)
        code = mt_out_of_memory(error);
    struct mt_run_options run_options = {.directory = options->directory,
                                         .recorder_path = options->recorder_path,
                                         .python_site = options->python_site,
                                         .tells_layers = options->tells_layers,
                                         .tells_operations = options->tells_operations,
                                         .depth = options->depth,
                                         .stacks = options->stacks,
                                         .picture_share = options->picture_share,
                                         .argv = command.words,
                                         .environment = options->environment,
                                         .stdout_fd = reader->writers[MT_PROFILE_STDOUT],
                                         .stderr_fd = reader->writers[MT_PROFILE_STDERR]};
    if (code == MT_OK)
        code = watch->runner->start(watch->runner->context, &run_options, error);
    watch->runs = code == MT_OK;
    if (code == MT_OK)
        watch->outcome->start_ns = watch->runner->began_ns(watch->runner->context);
    mt_profile_command_finish(&command);
    return code;
}

static int run_watched(struct watch *watch, const struct mt_profile_session_options *options,
                       struct mt_profile_reader *reader, struct mt_error *error)
{
    char log_path[PATH_MAX];
    snprintf(log_path, sizeof log_path, "%s/engine.log", options->directory);
    int code = start_run(watch, options, reader, error);
    if (code == MT_OK)
        code = watch_and_join(watch, reader, log_path, error);
    keep_tail(reader, watch->outcome);
    if (code == MT_OK)
        code = finish_run(watch, options->keep, error);
    if (watch->runs)
        watch->runner->abandon(watch->runner->context);
    return code;
}

int mt_profile_session_run(struct mt_profile_job *job,
                           const struct mt_profile_session_options *options,
                           struct mt_profile_outcome *outcome, struct mt_error *error)
{
    struct mt_run *run = NULL;
    const struct mt_profile_runner here = {
        &run, start_here, began_here, poll_here, signal_here, finish_here, abandon_here, NULL, 0};
    struct watch watch = {.job = job,
                          .runner = options->runner ? options->runner : &here,
                          .outcome = outcome,
                          .options = options};
    struct mt_profile_reader reader;
    *outcome = (struct mt_profile_outcome){0};
    int code = mt_profile_reader_open(&reader, job, error);
    if (code == MT_OK)
        code = run_watched(&watch, options, &reader, error);
    mt_profile_reader_close(&reader);
    mt_drive_hush(options->listener);
    return code;
}
