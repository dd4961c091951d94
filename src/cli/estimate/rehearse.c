/* SPDX-License-Identifier: MIT */
/* Whether the engine itself is asked, and what is said where it cannot be. */
#include <memtally/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/estimate/estimate.h"
#include "drive/engines.h"
#include "drive/stage.h"

/* Whether the engine says what it plans. */
static int has_plan(const char *engine)
{
    return mt_drive_engine_is(engine, "rehearsed", "plan");
}

int estimate_may_rehearse(const struct estimate_options *options)
{
    const char *never = getenv("MEMTALLY_NO_REHEARSE");
    return !options->no_rehearse && !(never && *never) && has_plan(options->engine) &&
           !options->matrix;
}

static void note_rules(struct estimate_result *result, struct estimate_request *request,
                       const char *program, const char *why)
{
    size_t length = strlen(why);
    snprintf(result->note, sizeof result->note,
             "By rules, because memtally could not rehearse %s: %s%s", program, why,
             length && why[length - 1] == '.' ? "" : ".");
    if (request->n_notes < ESTIMATE_NOTES_MAX)
        request->notes[request->n_notes++] = result->note;
}

/* What is rehearsed runs on this machine's processor, and matrices of a model that is on no device
 * lie in its layout. */
static int runs_elsewhere(const struct estimate_request *request)
{
    return !request->settings.n_devices && request->settings.processor != mt_processor_here();
}

int estimate_must_rehearse(struct estimate_result *result, const char *name,
                           struct estimate_request *request, const struct estimate_options *options,
                           struct mt_error *error)
{
    if (options->cpu && runs_elsewhere(request))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "estimate: the engine at --engine-path runs on this machine's processor, of "
                       "kind %s, and --cpu names another; leave one out",
                       mt_processor_name(mt_processor_here()));
    int failed = estimate_rehearse(result, name, request, options, error);
    if (failed != MT_ECHILD || (request->interrupted && *request->interrupted))
        return failed;
    note_rules(result, request, options->engine_path, error->text);
    return 0;
}

void estimate_try_to_rehearse(struct estimate_result *result, const char *name,
                              struct estimate_request *request,
                              const struct estimate_options *options)
{
    char program[PATH_MAX];
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (!estimate_may_rehearse(options) || (result->has_answer && !result->answer.value) ||
        runs_elsewhere(request) ||
        mt_drive_find_program(estimate_program(options), NULL, environ, program, NULL) < 0 ||
        !estimate_rehearse(result, name, request, options, &error) || error.code == MT_EVERSION)
        return;
    note_rules(result, request, program, error.text);
}

int estimate_confirm(struct estimate_result *result, const char *name,
                     struct estimate_request *request, const struct estimate_options *options,
                     struct mt_error *error)
{
    if (options->engine_path)
        return estimate_must_rehearse(result, name, request, options, error);
    estimate_try_to_rehearse(result, name, request, options);
    return 0;
}
