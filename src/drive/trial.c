/* SPDX-License-Identifier: MIT */
/* One run of a program on pretended devices. Knows when it is over, not what it was for. */
#include "trial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <memtally/gpu.h>
#include <memtally/rehearsal_events.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/settings.h>
#include <memtally/tally.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "base/ticks.h"
#include "settled.h"

#define LOOK_NS ((uint64_t)3 * 1000 * 1000)

/* Which card a device is: that it was said to be, or of NVIDIA's that its size mostly is. NULL:
 * none.
 */
static const char *find_card(const struct mt_drive_start *run, size_t device,
                             struct mt_rehearsal_gpu *gpu)
{
    const struct mt_predict_settings *s = run->settings;
    if (run->generation)
        return NULL;
    if (s->device_known && *s->device_known[device].gpu)
        return s->device_known[device].gpu;
    if (s->device_kind && strcmp(s->device_kind, "cuda") != 0)
        return NULL;
    return mt_rehearsal_gpu_of_size(s->device_bytes[device], NULL, gpu, NULL) < 0 ? NULL : gpu->key;
}

/* Fills in the devices; `scale` makes them larger with the same shares. */
static void fill_devices(const struct mt_drive_start *run, struct mt_rehearsal_gpu *gpus,
                         struct mt_rehearsal_device *devices)
{
    const struct mt_predict_settings *s = run->settings;
    for (size_t i = 0; i < s->n_devices; i++) {
        uint64_t reserved = run->reserved_bytes[i] < s->device_bytes[i] ? run->reserved_bytes[i]
                                                                        : s->device_bytes[i];
        devices[i] =
            (struct mt_rehearsal_device){.bytes = s->device_bytes[i] * run->scale,
                                         .reserved_bytes = reserved * run->scale,
                                         .gpu = find_card(run, i, &gpus[i]),
                                         .name = run->device_names ? run->device_names[i] : NULL};
    }
}

static int start(const struct mt_drive_start *run, int log_fd, struct mt_rehearsal **rehearsal,
                 struct mt_error *error)
{
    const struct mt_predict_settings *s = run->settings;
    struct mt_rehearsal_device *devices = calloc(s->n_devices + 1, sizeof *devices);
    struct mt_rehearsal_gpu *gpus = calloc(s->n_devices + 1, sizeof *gpus);
    if (!devices || !gpus) {
        free(devices);
        free(gpus);
        return mt_out_of_memory(error);
    }
    fill_devices(run, gpus, devices);
    const struct mt_rehearsal_options options = {
        .directory = run->directory,
        .pretend_path = run->pretend_path,
        .kind = s->device_kind,
        .generation = run->generation,
        .engine_version = run->engine_version,
        .devices = devices,
        .n_devices = s->n_devices,
        .argv = run->argv,
        .environment = run->environment,
        .stdout_fd = log_fd,
        .stderr_fd = log_fd,
    };
    int result = mt_rehearsal_start(&options, rehearsal, error);
    free(devices);
    free(gpus);
    return result;
}

/* The first allocation that did not fit is the one that matters: later ones are attempts to do with
 * less. */
static void note_refusal(struct mt_rehearsal *rehearsal, struct mt_drive_trial *outcome)
{
    const struct mt_rehearsal_event *event;
    for (size_t i = 0; (event = mt_rehearsal_event_at(rehearsal, i)); i++) {
        if (event->kind != MT_REHEARSAL_REFUSED)
            continue;
        outcome->was_refused = 1;
        snprintf(outcome->refused_place, sizeof outcome->refused_place, "%s", event->place);
        outcome->refused_category = event->category;
        outcome->refused_bytes = event->bytes;
        outcome->refused_free_bytes = event->free_bytes;
        snprintf(outcome->refused_what, sizeof outcome->refused_what, "%s",
                 event->detail && *event->detail ? event->detail : event->name);
        return;
    }
}

/* Waits until the server is ready, the program has ended, or there is no sign of it any more. */
static int watch(const struct mt_drive_start *run, struct mt_rehearsal *rehearsal,
                 struct mt_drive_trial *outcome, struct mt_error *error)
{
    uint64_t seen = 0;
    uint64_t seen_ns = 0;
    struct mt_drive_work work = {0};
    for (;;) {
        int result = mt_rehearsal_wait(rehearsal, LOOK_NS, &outcome->status, error);
        mt_drive_log_read(&outcome->log);
        if (result < 0 || !outcome->status.running)
            return result;
        /* What it took before it was ready may have come after our last look. */
        if (run->is_server && outcome->log.is_ready)
            return mt_rehearsal_wait(rehearsal, 0, &outcome->status, error);
        if (run->interrupted && *run->interrupted)
            return mt_fail(error, MT_ECHILD, MT_NO_OFFSET, "interrupted");
        mt_drive_say(run->listener, "rehearsing: %zu buffers, %.1f s", outcome->status.n_events,
                     (double)outcome->status.elapsed_ns / 1e9);
        uint64_t signs = outcome->log.offset + outcome->status.n_events;
        if (signs != seen)
            seen_ns = outcome->status.elapsed_ns;
        seen = signs;
        uint64_t now_ns = mt_monotonic_ns();
        outcome->hung = outcome->status.elapsed_ns - seen_ns > run->patience_ns;
        outcome->is_late =
            !outcome->hung && run->limit_ns && outcome->status.elapsed_ns > run->limit_ns;
        if (outcome->hung || outcome->is_late) {
            outcome->works_on =
                mt_drive_work_goes_on(&work, now_ns, mt_drive_cpu_ns("/proc", getpid()));
            return 0;
        }
        mt_drive_work_look(&work, now_ns, getpid());
    }
}

void mt_drive_name_version(const struct mt_rehearsal_status *status, char version[64])
{
    static const char only_ggml[] = "ggml ";
    int is_said = status->engine_version &&
                  strncmp(status->engine_version, only_ggml, sizeof only_ggml - 1) != 0;
    if (!is_said && status->is_attached && !status->is_build_known && status->ggml_version)
        snprintf(version, 64, "%" PRIu32 " (by ggml %.23s)", status->build, status->ggml_version);
    else
        snprintf(version, 64, "%.63s", status->engine_version ? status->engine_version : "");
}

/* Sends a server that is ready its requests, and says how it all went. */
static int serve(const struct mt_drive_start *run, struct mt_rehearsal *rehearsal,
                 struct mt_drive_trial *outcome, struct mt_error *error)
{
    int is_ready = run->is_server && outcome->log.is_ready && outcome->status.running;
    const struct mt_drive_settings settings = {
        .argv = run->argv,
        .environment = run->environment,
        .n_requests = run->n_requests,
        .listener = run->listener,
        .interrupted = run->interrupted,
    };
    if (is_ready && run->n_requests) {
        int result = mt_drive_to_end(rehearsal, &settings, &outcome->report, error);
        mt_drive_hush(run->listener);
        if (result == 0 && outcome->report.end == MT_DRIVE_INTERRUPTED)
            result = mt_fail(error, MT_ECHILD, MT_NO_OFFSET, "interrupted");
        return result < 0 ? result : mt_rehearsal_wait(rehearsal, 0, &outcome->status, error);
    }
    outcome->report = (struct mt_drive_report){
        .end = is_ready                  ? MT_DRIVE_SERVED
               : outcome->status.running ? MT_DRIVE_STUCK
                                         : MT_DRIVE_ENDED,
        .status = outcome->status,
        .is_server = run->is_server,
        .is_ready = is_ready,
    };
    return 0;
}

static int observe(const struct mt_drive_start *run, struct mt_rehearsal *rehearsal,
                   struct mt_drive_trial *outcome, struct mt_error *error)
{
    int result = watch(run, rehearsal, outcome, error);
    mt_drive_hush(run->listener);
    if (result == 0)
        result = serve(run, rehearsal, outcome, error);
    if (result < 0)
        return result;
    note_refusal(rehearsal, outcome);
    mt_drive_log_last_words(&outcome->log, outcome->last_words, sizeof outcome->last_words);
    if (outcome->status.refusal)
        snprintf(outcome->refusal, sizeof outcome->refusal, "%s", outcome->status.refusal);
    mt_drive_name_version(&outcome->status, outcome->version);
    outcome->status.engine_version = outcome->status.ggml_version = outcome->status.refusal = NULL;
    /* A program that has ended has given everything back: what it held at most counts. */
    int is_still_there = outcome->status.running && !run->n_requests;
    size_t at =
        is_still_there && outcome->status.n_events ? outcome->status.n_events - 1 : SIZE_MAX;
    return mt_rehearsal_tally(rehearsal, at, &outcome->tally, error);
}

int mt_drive_trial_run(const struct mt_drive_start *run, struct mt_drive_trial *outcome,
                       struct mt_error *error)
{
    char path[PATH_MAX];
    struct mt_rehearsal *rehearsal = NULL;
    if (snprintf(path, sizeof path, "%s/engine.log", run->directory) >= (int)sizeof path)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s: the path is too long", run->directory);
    if (mkdir(run->directory, 0700) < 0 && errno != EEXIST)
        return mt_fail_errno(error, errno, "%s", run->directory);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return mt_fail(error, MT_EBUSY, MT_NO_OFFSET,
                       "%s is there already, of another rehearsal; name a folder without one",
                       path);
    if (fd < 0)
        return mt_fail_errno(error, errno, "%s", path);
    mt_drive_log_init(&outcome->log, fd);
    int result = start(run, fd, &rehearsal, error);
    if (result == 0) {
        result = observe(run, rehearsal, outcome, error);
        mt_rehearsal_stop(rehearsal, 0); /* what it would tidy up is its own memory */
        if (run->keeps_events && result == 0)
            outcome->rehearsal = rehearsal;
        else
            mt_rehearsal_destroy(rehearsal);
    }
    close(fd);
    return result;
}

int mt_drive_went_well(const struct mt_drive_start *run, const struct mt_drive_trial *outcome)
{
    if (!outcome->tally || outcome->hung || outcome->is_late)
        return 0;
    return run->is_server ? outcome->log.is_ready
                          : !outcome->status.running && outcome->status.exit_code == 0;
}

void mt_drive_trial_finish(struct mt_drive_trial *outcome)
{
    mt_rehearsal_destroy(outcome->rehearsal);
    outcome->rehearsal = NULL;
    mt_tally_destroy(outcome->tally);
    outcome->tally = NULL;
}
