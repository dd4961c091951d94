/* SPDX-License-Identifier: MIT */
/* Rehearsing a CUDA program with changed settings. */
#include "cuda_suggest.h"

#include <memtally/error.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advise/cuda_search.h"
#include "base/environment.h"
#include "base/out_of_memory.h"
#include "base/ticks.h"
#include "device_size.h"
#include "drive/engines.h"

#define LIMIT_NS         ((uint64_t)600 * 1000 * 1000 * 1000) /* no attempt begins after that */
#define SERVER_ATTEMPTS  4
#define SERVER_FITS      2
#define LIGHT_ATTEMPTS   8 /* of what starts in seconds */
#define LIGHT_FITS       3
#define LABEL_BYTES      200
#define ALLOCATOR        "PYTORCH_CUDA_ALLOC_CONF"
#define ALLOCATOR_NEW    "PYTORCH_ALLOC_CONF"
#define EXPANDS          "expandable_segments"
#define LEAST_WEIGHTS_OF 4 /* weights are worth a word where they are a fourth of the device */

/* Attempts under way. */
struct attempts {
    const struct mt_drive_job *job;
    uint64_t until_ns; /* by the monotonic clock */
    size_t n;
    size_t most;
    char failure[600]; /* of the first that ended for another reason than memory, or "" */
    int code;          /* of a rehearsal that could not be made */
    struct mt_error error;
};

/* The fullest device. */
static void find_held(const struct mt_tally *tally, struct mt_advise_cuda_fit *fit)
{
    double most = -1;
    for (size_t i = 0; i < tally->n_places; i++) {
        const struct mt_tally_place *place = &tally->places[i];
        if (strncmp(place->place, "gpu:", 4) != 0 || place->total_allocated_bytes == MT_UNKNOWN ||
            place->capacity_bytes == MT_UNKNOWN || !place->capacity_bytes)
            continue;
        double part = (double)place->total_allocated_bytes / (double)place->capacity_bytes;
        if (part <= most)
            continue;
        most = part;
        fit->held_bytes = place->total_allocated_bytes;
        fit->capacity_bytes = place->capacity_bytes;
    }
}

static int rehearse(struct attempts *attempts, const struct mt_drive_job *job, const char *flags,
                    struct mt_advise_cuda_fit *fit)
{
    const volatile sig_atomic_t *interrupted = job->interrupted;
    struct mt_drive_job changed = *job;
    char label[LABEL_BYTES];
    if (mt_monotonic_ns() >= attempts->until_ns || (interrupted && *interrupted))
        return 1;
    struct mt_drive_result *result = calloc(1, sizeof *result);
    if (!result)
        return attempts->code = mt_out_of_memory(&attempts->error);
    attempts->n++;
    snprintf(label, sizeof label, "trying %s (%zu of at most %zu)", flags, attempts->n,
             attempts->most);
    changed.label = label;
    changed.folder = NULL;
    changed.hides_output = 1;
    attempts->code = mt_drive_run(&changed, result, &attempts->error);
    if (attempts->code == 0) {
        fit->fits = !result->is_unseen && mt_drive_ran(result);
        if (fit->fits)
            find_held(result->tally, fit);
        else
            mt_advise_shortage_of(result, &fit->shortage);
        if (!fit->fits && fit->shortage.kind == MT_ADVISE_NOT_SHORT && !*attempts->failure)
            snprintf(attempts->failure, sizeof attempts->failure, "With %.130s %.400s.", flags,
                     result->why);
        mt_drive_result_finish(result);
    }
    free(result);
    return attempts->code;
}

static int attempt(void *argument, char *const *argv, const char *flags,
                   struct mt_advise_cuda_fit *fit)
{
    struct attempts *attempts = argument;
    struct mt_drive_job job = *attempts->job;
    job.argv = argv;
    return rehearse(attempts, &job, flags, fit);
}

static uint64_t cached_at_refusal(const struct mt_drive_result *result)
{
    const struct mt_tally *held = result->held;
    for (size_t i = 0; held && result->refusal && i < held->n_places; i++)
        for (size_t k = 0; k < held->places[i].n_rows; k++)
            if (!strcmp(held->places[i].place, result->refusal->place) &&
                held->places[i].rows[k].category == MT_CATEGORY_CACHED &&
                held->places[i].rows[k].provenance == MT_PROVENANCE_EXACT)
                return held->places[i].rows[k].allocated_bytes;
    return 0;
}

/* An environment with one variable more; the array is the caller's. */
static char **with_variable(char *const *environment, char *variable)
{
    size_t n = 0;
    size_t length = strcspn(variable, "=") + 1;
    while (environment[n])
        n++;
    char **changed = calloc(n + 2, sizeof *changed);
    size_t k = 0;
    for (size_t i = 0; changed && i < n; i++)
        if (strncmp(environment[i], variable, length) != 0)
            changed[k++] = environment[i];
    if (changed)
        changed[k] = variable;
    return changed;
}

/* Memory that PyTorch held and could not use for what was asked: segments that expand would have
 * let it. */
static void try_segments(struct attempts *attempts, struct mt_advise_answer *answer)
{
    const struct mt_drive_result *result = &answer->result;
    struct mt_drive_job job = *attempts->job;
    char *const *environment = job.environment;
    const char *newer = mt_environment_get(environment, ALLOCATOR_NEW);
    const char *name = newer ? ALLOCATOR_NEW : ALLOCATOR;
    const char *given = newer ? newer : mt_environment_get(environment, ALLOCATOR);
    struct mt_advise_cuda_fit fit = {0};
    char variable[320];
    uint64_t cached = cached_at_refusal(result);
    if (!result->refusal || !cached || cached < result->refusal->missing_bytes ||
        (given && (strstr(given, EXPANDS) || strstr(given, "backend:") || strlen(given) > 200)))
        return;
    snprintf(variable, sizeof variable, "%s=%s%s" EXPANDS ":True", name, given ? given : "",
             given && *given ? "," : "");
    char **changed = with_variable(environment, variable);
    if (!changed)
        return;
    attempts->most++;
    job.environment = changed;
    if (rehearse(attempts, &job, variable, &fit) == 0) {
        answer->changes.n_tried++;
        snprintf(answer->changes.least, sizeof answer->changes.least, "%.150s", variable);
    }
    free(changed);
    if (!fit.fits)
        return;
    struct mt_advise_change *change = &answer->changes.items[answer->changes.n++];
    *change = (struct mt_advise_change){.held_bytes = fit.held_bytes,
                                        .capacity_bytes = fit.capacity_bytes};
    snprintf(change->flags, sizeof change->flags, "%.150s", variable);
    if (given)
        snprintf(change->instead_of, sizeof change->instead_of, "%s=%.100s", name, given);
    snprintf(change->costs, sizeof change->costs,
             "nothing; set in the environment, it lets PyTorch use again what it holds");
}

static void read_numbers(struct mt_rehearsal *rehearsal, uint64_t now[MT_ADVISE_SETTINGS])
{
    static const struct {
        const char *name;
        enum mt_advise_setting setting;
    } names[] = {{"context", MT_ADVISE_SET_CONTEXT},
                 {"sequences", MT_ADVISE_SET_SEQUENCES},
                 {"batched tokens", MT_ADVISE_SET_BATCHED_TOKENS},
                 {"weight", MT_ADVISE_SET_WEIGHT_TYPE}};
    struct mt_rehearsal_figure figure;
    mt_rehearsal_refresh(rehearsal);
    for (size_t i = 0; mt_rehearsal_figure_at(rehearsal, i, &figure) == 0; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!strcmp(figure.name, names[k].name) && figure.value > 0 && figure.value < 1e12)
                now[names[k].setting] = (uint64_t)figure.value;
}

static uint64_t smallest_device(const struct mt_drive_job *job)
{
    uint64_t bytes = job->devices[0].bytes;
    for (size_t i = 1; i < job->n_devices; i++)
        bytes = job->devices[i].bytes < bytes ? job->devices[i].bytes : bytes;
    return bytes;
}

static void search_settings(struct attempts *attempts, const struct mt_drive_command *command,
                            const struct mt_advise_whole *whole, struct mt_advise_answer *answer)
{
    const struct mt_drive_job *job = attempts->job;
    int is_light = mt_drive_command_is(command, "starts", "quickly");
    struct mt_advise_cuda_search search = {
        .command = command,
        .n_devices = job->n_devices,
        .device_bytes = smallest_device(job),
        .share = mt_advise_takes_a_share(job->argv) ? mt_advise_share_of(job->argv) : 0,
        .whole_bytes = whole->whole_bytes,
        .fixed_bytes = whole->fixed_bytes,
        .attempts_max = attempts->most - attempts->n,
        .fits_max = is_light ? LIGHT_FITS : SERVER_FITS,
        .attempt = attempt,
        .argument = attempts,
    };
    mt_advise_shortage_of(&answer->result, &search.shortage);
    read_numbers(answer->result.rehearsal, search.now);
    if (mt_advise_cuda_search(&search, &answer->changes) == MT_ENOMEM && !attempts->code)
        attempts->code = mt_out_of_memory(&attempts->error);
}

/* Weights of fewer bits are another model, and none is made of it here. */
static void note_weights(const struct mt_drive_job *job, const char *engine,
                         struct mt_advise_answer *answer)
{
    const struct mt_tally *tally = answer->result.tally;
    uint64_t most = 0;
    char size[MT_SIZE_TEXT];
    char flag[MT_DRIVE_ENGINE_TEXT];
    for (size_t i = 0; i < tally->n_places; i++)
        for (size_t k = 0; k < tally->places[i].n_rows; k++) {
            const struct mt_tally_row *row = &tally->places[i].rows[k];
            if (!strncmp(tally->places[i].place, "gpu:", 4) &&
                row->category == MT_CATEGORY_WEIGHTS && row->allocated_bytes != MT_UNKNOWN)
                most = row->allocated_bytes > most ? row->allocated_bytes : most;
        }
    if (most <= smallest_device(job) / LEAST_WEIGHTS_OF)
        return;
    mt_drive_engine_word(engine, "flags", "weight_type.fp8", flag);
    mt_advise_answer_note(
        answer,
        "memtally did not try weights of fewer bits (a quantised model%s%.40s%s); "
        "a device held %s of weights when it ran out.",
        *flag ? ", or " : "", flag, *flag ? " fp8" : "", mt_format_size(most, size));
}

/* An engine that is known: one that starts in seconds is first seen where nothing limits it, others
 * only where no setting was enough. */
static int look_for_changes(struct attempts *attempts, struct mt_drive_command *command,
                            struct mt_advise_answer *answer, struct mt_error *error)
{
    struct mt_advise_whole whole = {.is_known = 0};
    const char *engine = mt_advise_cuda_engine_of(command);
    int is_light = mt_drive_command_is(command, "starts", "quickly");
    int is_first = is_light || !engine;
    int code = 0;
    attempts->most = is_light ? LIGHT_ATTEMPTS : engine ? SERVER_ATTEMPTS : 0;
    try_segments(attempts, answer);
    if (is_first)
        code = mt_advise_look_at_whole(attempts->job, &whole, error);
    if (!code && !attempts->code && engine)
        search_settings(attempts, command, &whole, answer);
    if (!code && !attempts->code && !is_first && !answer->changes.n)
        code = mt_advise_look_at_whole(attempts->job, &whole, error);
    if (attempts->code) {
        *error = attempts->error;
        return attempts->code;
    }
    if (code)
        return code;
    if (engine)
        mt_advise_answer_count(answer);
    if (*attempts->failure)
        mt_advise_answer_note(answer, "%s", attempts->failure);
    if (is_first || !answer->changes.n)
        mt_advise_answer_device_size(attempts->job, &whole, answer);
    if (engine)
        note_weights(attempts->job, engine, answer);
    return 0;
}

void mt_advise_cuda_suggest(const struct mt_drive_job *job, struct mt_advise_answer *answer)
{
    struct mt_drive_command command;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct attempts attempts = {
        .job = job, .until_ns = mt_monotonic_ns() + LIMIT_NS, .error = {.offset = MT_NO_OFFSET}};
    if (!job->n_devices)
        return;
    mt_drive_command_copy(job->argv, &command);
    int code = command.failed ? mt_out_of_memory(&error)
                              : look_for_changes(&attempts, &command, answer, &error);
    if (code)
        mt_advise_answer_note(answer, "memtally did not try all changes: %s.", error.text);
    mt_drive_command_finish(&command);
}
