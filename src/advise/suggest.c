/* SPDX-License-Identifier: MIT */
/* Rehearsing command lines for the search of one that fits. */
#include "suggest.h"

#include <errno.h>
#include <limits.h>
#include <memtally/model_file.h>
#include <memtally/rehearsal_events.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "base/ticks.h"
#include "drive/flags.h"
#include "drive/stage.h"

#define PLACES_MAX 65 /* 64 devices and the host */
#define GRACE_NS   ((uint64_t)200 * 1000 * 1000)
#define MIN_NS     ((uint64_t)1000 * 1000 * 1000)

/* Attempts under way. */
struct attempts {
    const struct mt_advise_suggest_settings *settings;
    uint64_t until_ns; /* by the monotonic clock */
    size_t n;
    size_t most;
    int code; /* of a rehearsal that could not be made */
    struct mt_error *error;
};

/* What a place holds and held at most. */
struct held {
    const char *place;
    uint64_t bytes;
    uint64_t peak_bytes;
};

static struct held *held_at(struct held *places, const char *name)
{
    for (size_t i = 0; i < PLACES_MAX; i++) {
        if (!places[i].place)
            places[i].place = name;
        if (strcmp(places[i].place, name) == 0)
            return &places[i];
    }
    return NULL;
}

static void count_event(struct held *places, const struct mt_rehearsal_event *event)
{
    if (event->flags & (MT_REHEARSAL_MAPPED | MT_REHEARSAL_PLANNED) ||
        (event->kind != MT_REHEARSAL_ALLOC && event->kind != MT_REHEARSAL_FREE))
        return;
    struct held *held = held_at(places, event->place);
    if (!held)
        return;
    if (event->kind == MT_REHEARSAL_FREE)
        held->bytes -= event->bytes < held->bytes ? event->bytes : held->bytes;
    else if (__builtin_add_overflow(held->bytes, event->bytes, &held->bytes))
        held->bytes = UINT64_MAX;
    if (held->bytes > held->peak_bytes)
        held->peak_bytes = held->bytes;
}

static const struct mt_rehearsal_device *device_of(const struct mt_rehearsal_options *options,
                                                   const char *place)
{
    unsigned number = 0;
    return sscanf(place, "gpu:%u", &number) == 1 && number < options->n_devices
               ? &options->devices[number]
               : NULL;
}

/* What the place has in all; UINT64_MAX without a limit. */
static uint64_t whole_of(const struct mt_rehearsal_options *options, const char *place)
{
    const struct mt_rehearsal_device *device = device_of(options, place);
    if (strcmp(place, "host") == 0 && options->host_bytes)
        return options->host_bytes;
    return device ? device->bytes : UINT64_MAX;
}

/* What the place could take; UINT64_MAX without a limit. */
static uint64_t capacity_of(const struct mt_rehearsal_options *options, const char *place)
{
    const struct mt_rehearsal_device *device = device_of(options, place);
    uint64_t whole = whole_of(options, place);
    if (!device)
        return whole;
    return whole > device->reserved_bytes ? whole - device->reserved_bytes : 0;
}

/* What the place that had no room has left at its fullest. */
static uint64_t headroom(const struct attempts *attempts, struct mt_rehearsal *rehearsal)
{
    struct held places[PLACES_MAX] = {0};
    const struct mt_rehearsal_event *event;
    for (size_t i = 0; (event = mt_rehearsal_event_at(rehearsal, i)) != NULL; i++)
        count_event(places, event);
    uint64_t capacity = capacity_of(attempts->settings->options, attempts->settings->place);
    const struct held *held = held_at(places, attempts->settings->place);
    uint64_t peak = held ? held->peak_bytes : 0;
    return capacity == UINT64_MAX || peak > capacity ? 0 : capacity - peak;
}

static int drive(struct attempts *attempts, struct mt_rehearsal *rehearsal, char *const *argv,
                 struct mt_advise_fit *fit)
{
    uint64_t now_ns = mt_monotonic_ns();
    uint64_t left_ns = now_ns + MIN_NS < attempts->until_ns ? attempts->until_ns - now_ns : MIN_NS;
    struct mt_drive_settings settings = {
        .argv = argv,
        .environment = attempts->settings->options->environment,
        .n_requests = attempts->settings->n_requests,
        .start_ns = left_ns,
        .drive_ns = left_ns < MT_DRIVE_DEFAULT_DRIVE_NS ? left_ns : MT_DRIVE_DEFAULT_DRIVE_NS,
        .interrupted = attempts->settings->interrupted};
    struct mt_drive_report report;
    int code = mt_drive_to_end(rehearsal, &settings, &report, attempts->error);
    if (code != MT_OK)
        return code;
    enum mt_drive_outcome outcome = mt_drive_outcome_of(rehearsal, &report);
    fit->fits = outcome < attempts->settings->was;
    fit->headroom_bytes = fit->fits ? headroom(attempts, rehearsal) : 0;
    return MT_OK;
}

static int rehearse(struct attempts *attempts, char *const *argv, struct mt_advise_fit *fit)
{
    struct mt_rehearsal_options options = *attempts->settings->options;
    struct mt_rehearsal *rehearsal = NULL;
    char folder[PATH_MAX];
    int length = snprintf(folder, sizeof folder, "%s/try-%zu", options.directory, attempts->n);
    if (length < 0 || (size_t)length >= sizeof folder)
        return mt_fail(attempts->error, MT_EARG, MT_NO_OFFSET, "%s: the path is too long",
                       options.directory);
    char **words = mt_drive_argv(argv, folder);
    if (!words)
        return mt_out_of_memory(attempts->error);
    options.directory = folder;
    options.argv = words;
    options.stdout_fd = -1;
    options.stderr_fd = -1;
    int code = mt_rehearsal_start(&options, &rehearsal, attempts->error);
    if (code == MT_OK) {
        code = drive(attempts, rehearsal, words, fit);
        mt_rehearsal_stop(rehearsal, GRACE_NS);
    }
    mt_rehearsal_destroy(rehearsal);
    mt_drive_folder_remove(folder);
    mt_drive_argv_free(words);
    return code;
}

static int attempt(void *argument, char *const *argv, struct mt_advise_fit *fit)
{
    struct attempts *attempts = argument;
    const volatile sig_atomic_t *interrupted = attempts->settings->interrupted;
    if (attempts->n >= attempts->most || mt_monotonic_ns() >= attempts->until_ns ||
        (interrupted && *interrupted))
        return 1;
    attempts->n++;
    mt_drive_say(attempts->settings->listener,
                 "looking for flags with which it fits: rehearsal %zu", attempts->n);
    attempts->code = rehearse(attempts, argv, fit);
    return attempts->code != MT_OK;
}

/* The model is opened for its numbers; where it cannot be, knobs that need them are left alone. */
static void learn_model(const char *path, struct mt_advise_search *search)
{
    struct mt_model *model = NULL;
    if (!path || mt_model_open(path, NULL, &model, NULL) != MT_OK)
        return;
    const struct mt_model_description *description = mt_model_describe(model);
    search->layers = description->n_layers - description->n_draft_layers;
    search->experts = description->experts;
    search->context = description->context_length;
    mt_model_close(model);
}

/* Whether the place had no room for weights before there was anything else on it. */
static int is_weights_alone(const struct mt_advise_suggest_settings *settings)
{
    const struct mt_rehearsal_event *event;
    for (size_t i = 0; (event = mt_rehearsal_event_at(settings->rehearsal, i)) != NULL; i++) {
        if (event->flags & MT_REHEARSAL_PLANNED || strcmp(event->place, settings->place) != 0)
            continue;
        if (event->kind == MT_REHEARSAL_REFUSED)
            return event->category == MT_CATEGORY_WEIGHTS;
        if (event->kind == MT_REHEARSAL_ALLOC && event->category != MT_CATEGORY_WEIGHTS)
            return 0;
    }
    return 0;
}

/* What the place that had no room would hold, with what was taken of it before. */
static void count_held(const struct mt_advise_suggest_settings *settings,
                       struct mt_advise_changes *changes)
{
    uint64_t whole = whole_of(settings->options, settings->place);
    for (size_t i = 0; i < changes->n; i++) {
        if (whole == UINT64_MAX || changes->items[i].headroom_bytes >= whole)
            continue;
        changes->items[i].held_bytes = whole - changes->items[i].headroom_bytes;
        changes->items[i].capacity_bytes = whole;
    }
}

static int search_flags(const struct mt_advise_suggest_settings *settings,
                        const struct mt_drive_command *command, struct mt_advise_changes *changes,
                        struct mt_error *error)
{
    char *const *environment = settings->options->environment;
    struct attempts attempts = {
        .settings = settings,
        .until_ns = mt_monotonic_ns() +
                    (settings->limit_ns ? settings->limit_ns : MT_ADVISE_DEFAULT_SUGGEST_NS),
        .most = settings->attempts_max ? settings->attempts_max : MT_ADVISE_DEFAULT_ATTEMPTS,
        .error = error};
    struct mt_advise_search search = {.command = command,
                                      .environment = environment,
                                      .is_host_short = strcmp(settings->place, "host") == 0,
                                      .is_weights_alone = is_weights_alone(settings),
                                      .attempt = attempt,
                                      .argument = &attempts};
    learn_model(mt_drive_flag_value(command, environment, MT_DRIVE_MODEL), &search);
    int code = mt_advise_search(&search, changes);
    count_held(settings, changes);
    if (code == MT_ENOMEM)
        return mt_out_of_memory(error);
    return attempts.code;
}

int mt_advise_suggest(const struct mt_advise_suggest_settings *settings,
                      struct mt_advise_changes *changes, struct mt_error *error)
{
    struct mt_drive_command command;
    int code;
    mt_drive_command_copy(settings->options->argv, &command);
    if (command.failed)
        code = mt_out_of_memory(error);
    else if (!mt_drive_command_is(&command, "devices", "ggml"))
        code = mt_fail(
            error, MT_EUNSUPPORTED, MT_NO_OFFSET,
            "memtally does not know the flags of %s; it knows those of llama.cpp's own programs",
            settings->options->argv[0]);
    else
        code = search_flags(settings, &command, changes, error);
    mt_drive_command_finish(&command);
    return code;
}
