/* SPDX-License-Identifier: MIT */
/* Starting and ending a program in its room. Knows neither queue nor schedule. */
#include "cli/budget/held_run.h"

#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/console.h"
#include "drive/objects.h"

/* ---- devices ---- */

static int open_pretended(struct budget_run *run, const struct budget_world *world,
                          const struct budget_held *held, const struct mt_job_options *options)
{
    char words[MT_JOB_DEVICES][ESTIMATE_GPU_BYTES];
    uint64_t free_bytes[ESTIMATE_DEVICES_MAX];
    struct cli_texts names = {.n = 0};
    for (size_t i = 0; i < held->needs.n && names.n < MT_JOB_DEVICES; i++) {
        const struct mt_budget_need *need = &held->needs.items[i];
        unsigned device = budget_device_number(need->place);
        if (strcmp(need->place, "host") == 0 || device >= world->n_pretended)
            continue;
        char *word = words[names.n];
        if (*world->pretended_gpus[device])
            snprintf(word, sizeof words[0], "%s", world->pretended_gpus[device]);
        else
            snprintf(word, sizeof words[0], "%" PRIu64, world->pretended_bytes[device]);
        free_bytes[names.n] = need->bytes;
        names.items[names.n++] = word;
    }
    char *const *environment;
    int code = rehearse_open_recorded(world->command, &names, free_bytes, options->argv,
                                      options->environment, &run->devices, &environment);
    run->environment = (char **)environment;
    return code;
}

/* A driver has no limit for a process: the recorder in it refuses, or memtally watches it. */
static int take_real(struct budget_run *run, const struct budget_world *world,
                     const struct budget_held *held, enum mt_job_cap cap,
                     struct mt_job_device *devices, struct mt_job_options *options)
{
    char visible[MT_JOB_DEVICES * 4 + 1] = "";
    struct mt_error error;
    size_t n = 0;
    for (size_t i = 0; i < held->needs.n; i++) {
        const struct mt_budget_need *need = &held->needs.items[i];
        if (strcmp(need->place, "host") == 0)
            continue;
        devices[n] = (struct mt_job_device){budget_device_number(need->place), need->bytes};
        snprintf(visible + strlen(visible), sizeof visible - strlen(visible), "%s%u", n ? "," : "",
                 devices[n].index);
        n++;
    }
    options->n_devices = n;
    if (n == 0)
        return CLI_EXIT_OK;
    int is_refused = cap != MT_JOB_CAP_WATCH && cap != MT_JOB_CAP_NONE;
    if (is_refused &&
        mt_drive_find_recorder(environ, run->recorder, sizeof run->recorder, &error) < 0) {
        cli_complain("%s: %s; without it nothing holds a program to a part of a device but --cap "
                     "watch",
                     world->command, error.text);
        return CLI_EXIT_FAILED;
    }
    options->recorder_path = is_refused ? run->recorder : NULL;
    if (asprintf(&run->owned[0], "CUDA_VISIBLE_DEVICES=%s", visible) < 0)
        run->owned[0] = NULL;
    run->owned[1] = strdup("CUDA_DEVICE_ORDER=PCI_BUS_ID"); /* as NVML counts */
    return CLI_EXIT_OK;
}

static int is_named(const char *variable, const char *other)
{
    size_t length = other ? strcspn(other, "=") + 1 : 0;
    return length && strncmp(variable, other, length) == 0;
}

static char **with_owned(char *const *environment, char *const owned[2])
{
    size_t n = 0;
    while (environment[n])
        n++;
    char **made = calloc(n + 3, sizeof *made);
    size_t kept = 0;
    for (size_t i = 0; made && i < n; i++)
        if (!is_named(environment[i], owned[0]) && !is_named(environment[i], owned[1]))
            made[kept++] = environment[i];
    for (size_t i = 0; made && i < 2; i++)
        if (owned[i])
            made[kept++] = owned[i];
    return made;
}

static void forget(struct budget_run *run)
{
    if (!run->devices)
        free(run->environment);
    free(run->owned[0]);
    free(run->owned[1]);
    rehearse_close_recorded(run->devices);
}

int budget_run_start(struct budget_run *run, const struct budget_world *world,
                     const struct budget_held *held, enum mt_job_cap cap,
                     struct mt_job_options *options)
{
    struct mt_job_device devices[MT_JOB_DEVICES];
    struct mt_error error;
    int code = CLI_EXIT_OK;
    memset(run, 0, sizeof *run);
    for (size_t i = 0; i < held->needs.n; i++)
        if (strcmp(held->needs.items[i].place, "host") != 0)
            snprintf(run->device_names[run->n_devices++], sizeof run->device_names[0], "%.7s",
                     held->needs.items[i].place);
    if (world->n_pretended && run->n_devices) {
        code = open_pretended(run, world, held, options);
    } else {
        code = take_real(run, world, held, cap, devices, options);
        if (code == CLI_EXIT_OK)
            run->environment = with_owned(options->environment, run->owned);
    }
    if (code == CLI_EXIT_OK && !run->environment) {
        cli_complain("%s: out of memory", world->command);
        code = CLI_EXIT_FAILED;
    }
    options->environment = run->environment;
    options->devices = devices;
    options->cap = cap;
    options->host_bytes = budget_host_bytes(&held->needs);
    if (code == CLI_EXIT_OK && mt_job_start(options, &run->job, &error) < 0) {
        cli_complain("%s: %s%s", world->command, error.text,
                     error.code == MT_EUNSUPPORTED && options->recorder_path
                         ? "; choose --cap watch, which kills it when it is seen past its need, or "
                           "--cap none"
                         : "");
        code = error.code == MT_ENOTFOUND ? CLI_EXIT_NOT_FOUND
               : error.code == MT_EPERM   ? CLI_EXIT_NOT_EXECUTABLE
                                          : CLI_EXIT_FAILED;
    }
    if (code)
        forget(run);
    return code;
}

/* ---- its end ---- */

void budget_run_wait(struct budget_run *run, int timeout_ms, struct mt_job_status *status)
{
    mt_job_wait(run->job, timeout_ms, status);
    if (run->devices)
        rehearse_poll_recorded(run->devices);
}

void budget_run_finish(struct budget_run *run, struct budget_end *end)
{
    memset(end, 0, sizeof *end);
    mt_job_finish(run->job, &end->job);
    end->n_refusals = end->job.n_device_refusals;
    memcpy(end->device_peak_bytes, end->job.device_peak_bytes, sizeof end->device_peak_bytes);
    memcpy(end->left_device_bytes, end->job.left_device_bytes, sizeof end->left_device_bytes);
    if (run->devices) {
        struct rehearse_recorded_figures figures;
        rehearse_read_recorded(run->devices, &figures);
        end->n_refusals = figures.n_refusals;
        memcpy(end->device_peak_bytes, figures.peak_bytes, sizeof end->device_peak_bytes);
        memcpy(end->left_device_bytes, figures.held_bytes, sizeof end->left_device_bytes);
    }
    forget(run);
}

void budget_put_left(const struct budget_run *run, const struct budget_end *end,
                     struct mt_strbuf *out)
{
    const struct mt_job_result *job = &end->job;
    char size[MT_SIZE_TEXT];
    if (job->left_bytes > BUDGET_LEFT_BYTES) {
        mt_strbuf_printf(
            out, "%s of host left behind in %zu process%s:", mt_format_size(job->left_bytes, size),
            job->n_left, job->n_left == 1 ? " that lives on" : "es that live on");
        for (size_t i = 0; i < job->n_left && i < MT_JOB_LEFT; i++)
            mt_strbuf_printf(out, "%s %d (%s)", i ? "," : "", job->left[i].pid, job->left[i].name);
        mt_strbuf_puts(out, "\n");
    }
    if (job->left_shared_bytes != MT_UNKNOWN && job->left_shared_bytes > BUDGET_LEFT_BYTES)
        mt_strbuf_printf(out, "%s of host left behind in shared memory; see /dev/shm and ipcs -m\n",
                         mt_format_size(job->left_shared_bytes, size));
    for (size_t i = 0; i < run->n_devices; i++)
        if (end->left_device_bytes[i] > BUDGET_LEFT_BYTES)
            mt_strbuf_printf(out, "%s of %s left behind\n",
                             mt_format_size(end->left_device_bytes[i], size), run->device_names[i]);
}
