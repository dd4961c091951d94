/* SPDX-License-Identifier: MIT */
/* One rehearsal from its folder to its result. Knows the library's rehearsals and the drive of
 * servers; outcome.c, endings.c and program_file.c say what came of it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/tally.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "job.h"
#include "last_words.h"
#include "pretend_path.h"
#include "trial.h"
#include "words.h"

#define TIMEOUT_NS ((uint64_t)600 * 1000 * 1000 * 1000)
#define GRACE_NS   ((uint64_t)2 * 1000 * 1000 * 1000)

static int make_folder(const struct mt_drive_job *job, struct mt_drive_result *result,
                       struct mt_error *error)
{
    const char *base = mt_environment_temporary(job->environment);
    int length = job->folder
                     ? snprintf(result->folder, PATH_MAX, "%s", job->folder)
                     : snprintf(result->folder, PATH_MAX, "%s/memtally-rehearse-XXXXXX", base);
    if (length >= PATH_MAX)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "the path of the rehearsal's folder is too "
                       "long");
    if (job->folder)
        return 0;
    if (!mkdtemp(result->folder))
        return mt_fail_errno(error, errno, "%s (TMPDIR says where temporary files go)",
                             result->folder);
    result->is_temporary = 1;
    return 0;
}

void mt_drive_job_options(const struct mt_drive_job *job, const char *folder,
                          const char *pretend_path, struct mt_rehearsal_options *options)
{
    *options = (struct mt_rehearsal_options){
        .directory = folder,
        .pretend_path = pretend_path,
        .kind = job->device_kind,
        .generation = job->generation,
        .engine_version = job->engine_version,
        .devices = job->devices,
        .n_devices = job->n_devices,
        .host_bytes = job->host_bytes,
        .argv = job->argv,
        .environment = job->environment,
        .stdout_fd = -1,
        .stderr_fd = -1,
    };
}

/* Adds the look-alikes of CUDA's libraries, unless the program needs none or there are none. */
static int add_cuda(const struct mt_drive_job *job, struct mt_drive_cuda_paths *paths,
                    struct mt_rehearsal_options *options, struct mt_error *error)
{
    int is_cuda_kind = !job->device_kind || !strcmp(job->device_kind, "cuda");
    enum mt_drive_layer layer =
        job->layer ? job->layer : mt_drive_layer_of(job->argv, job->environment);
    if (layer == MT_DRIVE_LAYER_GGML || !is_cuda_kind || !job->n_devices)
        return 0;
    int result = job->cuda ? 0 : mt_drive_find_cuda(job->environment, paths, error);
    if (result < 0)
        return job->layer ? result : 0;
    options->cuda_directory = job->cuda ? job->cuda->directory : paths->directory;
    options->helper_directory = job->cuda ? job->cuda->helper : paths->helper;
    if (!*options->helper_directory)
        options->helper_directory = NULL;
    return 0;
}

/* With `environment` the program is the caller's to start in it. */
static int start(const struct mt_drive_job *job, char *const *argv, struct mt_drive_result *result,
                 char ***environment, struct mt_error *error)
{
    char pretend[PATH_MAX];
    struct mt_drive_cuda_paths paths;
    struct mt_rehearsal_options options;
    if (!job->pretend_path) {
        int found = mt_drive_find_pretend(job->environment, pretend, sizeof pretend, error);
        if (found < 0)
            return found;
    }
    mt_drive_job_options(job, result->folder, job->pretend_path ? job->pretend_path : pretend,
                         &options);
    options.argv = argv;
    int added = add_cuda(job, &paths, &options, error);
    if (added < 0)
        return added;
    result->has_cuda = options.cuda_directory != NULL;
    return environment ? mt_rehearsal_open(&options, &result->rehearsal, environment, error)
                       : mt_rehearsal_start(&options, &result->rehearsal, error);
}

static int drive(const struct mt_drive_job *job, char *const *argv, struct mt_drive_result *result,
                 struct mt_drive_echo *echo, struct mt_error *error)
{
    uint64_t limit_ns = job->timeout_ns ? job->timeout_ns : TIMEOUT_NS;
    const struct mt_drive_settings settings = {
        .argv = argv,
        .environment = job->environment,
        .n_requests = job->n_requests,
        .start_ns = result->has_cuda ? limit_ns : 0, /* it compiles, and shows no sign of it */
        .limit_ns = limit_ns,
        .listener = job->listener,
        .echo = echo,
        .label = job->label,
        .interrupted = job->interrupted,
    };
    int code = mt_drive_to_end(result->rehearsal, &settings, &result->report, error);
    mt_drive_hush(job->listener);
    return code;
}

static int shows_output(const struct mt_drive_job *job)
{
    return !job->hides_output && job->listener && job->listener->output;
}

static int drive_and_show(const struct mt_drive_job *job, char *const *argv,
                          struct mt_drive_result *result, struct mt_error *error)
{
    struct mt_drive_echo echo;
    if (!shows_output(job))
        return drive(job, argv, result, NULL, error);
    mt_drive_echo_open(&echo, result->folder);
    int code = drive(job, argv, result, &echo, error);
    mt_drive_echo_show(&echo, job->listener);
    mt_drive_hush(job->listener);
    mt_drive_echo_close(&echo);
    return code;
}

static void note_refusals(struct mt_drive_result *result)
{
    const struct mt_rehearsal_event *event;
    for (size_t i = 0; (event = mt_rehearsal_event_at(result->rehearsal, i)) != NULL; i++) {
        if (event->kind != MT_REHEARSAL_REFUSED)
            continue;
        result->refusal = event;
        result->refusal_index = i;
        result->n_refusals++;
    }
}

void mt_drive_result_take(struct mt_drive_result *result, struct mt_rehearsal *rehearsal,
                          const struct mt_drive_report *report,
                          const struct mt_rehearsal_status *status)
{
    *result =
        (struct mt_drive_result){.rehearsal = rehearsal, .report = *report, .status = *status};
    mt_rehearsal_last_words(rehearsal, result->words, sizeof result->words);
    mt_drive_clean_words(result->words);
    note_refusals(result);
    result->outcome = mt_drive_outcome_of(rehearsal, &result->report);
    mt_drive_explain_end(result);
}

static int conclude(const struct mt_drive_job *job, struct mt_drive_result *result,
                    struct mt_error *error)
{
    int code = mt_rehearsal_wait(result->rehearsal, 0, &result->status, error);
    if (code < 0)
        return code;
    mt_rehearsal_last_words(result->rehearsal, result->words, sizeof result->words);
    mt_drive_clean_words(result->words);
    mt_drive_name_version(&result->status, result->version);
    result->is_cuda = result->status.n_contexts && !result->status.is_attached;
    result->is_unseen = job->n_devices ? !result->status.is_attached && !result->is_cuda
                                       : !result->status.api_version;
    if (result->is_unseen && result->report.end == MT_DRIVE_INTERRUPTED)
        return mt_fail(error, MT_ECANCELLED, MT_NO_OFFSET,
                       "the rehearsal was interrupted before the program took a device");
    if (result->is_unseen)
        mt_drive_look_for_ggml(result);
    mt_rehearsal_stop(result->rehearsal, GRACE_NS);
    note_refusals(result);
    if (result->has_cuda)
        mt_drive_read_refusal(result);
    result->outcome = mt_drive_outcome_of(result->rehearsal, &result->report);
    mt_drive_settle(result);
    if (result->is_cuda && result->refusal)
        code = mt_rehearsal_tally(result->rehearsal, result->refusal_index, &result->held, error);
    if (code < 0)
        return code;
    if (result->is_cuda && mt_drive_explain_private(result))
        result->is_unseen = 1;
    else if (result->is_unseen)
        mt_drive_explain_no_devices(job, result);
    else
        mt_drive_explain_end(result);
    return mt_rehearsal_tally(result->rehearsal, SIZE_MAX, &result->tally, error);
}

static int run(const struct mt_drive_job *job, int tells_interruption,
               struct mt_drive_result *result, struct mt_error *error)
{
    *result = (struct mt_drive_result){0};
    int code = make_folder(job, result, error);
    if (code < 0)
        return code;
    char **argv = mt_drive_argv(job->argv, result->folder);
    if (!argv)
        code = mt_out_of_memory(error);
    if (code == 0)
        code = start(job, argv, result, NULL, error);
    if (code == 0)
        code = drive_and_show(job, argv, result, error);
    if (code == 0 && result->report.end == MT_DRIVE_INTERRUPTED && !tells_interruption)
        code = mt_fail(error, MT_ECANCELLED, MT_NO_OFFSET, "the rehearsal was interrupted");
    if (code == 0)
        code = conclude(job, result, error);
    mt_drive_argv_free(argv);
    if (code < 0)
        mt_drive_result_finish(result);
    return code;
}

int mt_drive_open(const struct mt_drive_job *job, struct mt_drive_result *result,
                  char ***environment, struct mt_error *error)
{
    *result = (struct mt_drive_result){0};
    int code = make_folder(job, result, error);
    if (code == 0)
        code = start(job, job->argv, result, environment, error);
    if (code < 0)
        mt_drive_result_finish(result);
    return code;
}

int mt_drive_run(const struct mt_drive_job *job, struct mt_drive_result *result,
                 struct mt_error *error)
{
    return run(job, 0, result, error);
}

int mt_drive_run_to_answer(const struct mt_drive_job *job, struct mt_drive_result *result,
                           struct mt_error *error)
{
    return run(job, 1, result, error);
}

void mt_drive_result_finish(struct mt_drive_result *result)
{
    mt_rehearsal_destroy(result->rehearsal);
    mt_tally_destroy(result->tally);
    mt_tally_destroy(result->held);
    if (result->is_temporary)
        mt_drive_folder_remove(result->folder);
    *result = (struct mt_drive_result){0};
}
