/* SPDX-License-Identifier: MIT */
/* Devices that are not there, under the recorder. Knows no recording. */
#include "cli/rehearse/recorded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/error.h>

#include "cli/model/model.h"
#include "cli/rehearse/devices.h"
#include "drive/job.h"
#include "drive/layer.h"
#include "drive/stage.h"

/* Within it a rehearsal has looked which processes have ended. */
#define ENDS_SEEN_NS 200000000u

struct rehearse_recorded {
    struct mt_drive_result result;
    char **environment;
};

static int open_devices(struct estimate_request *request, const uint64_t *free_bytes,
                        char *const *argv, char *const *given, struct rehearse_recorded *recorded,
                        struct mt_error *error)
{
    struct mt_rehearsal_device devices[ESTIMATE_DEVICES_MAX];
    const char *kind = request->settings.device_kind;
    enum mt_drive_layer layer =
        kind && strcmp(kind, "cuda") != 0 ? MT_DRIVE_LAYER_GGML : mt_drive_layer_of(argv, given);
    int is_cuda = layer == MT_DRIVE_LAYER_CUDA;
    int result = estimate_choose_cards(request, NULL, is_cuda, error);
    if (result == 0 && !is_cuda)
        result = mt_drive_check_devices(request->settings.n_devices, error);
    for (size_t i = 0; result == 0 && free_bytes && i < request->settings.n_devices; i++)
        if (free_bytes[i] < request->device_bytes[i])
            request->device_used_bytes[i] = request->device_bytes[i] - free_bytes[i];
    if (result == 0)
        result = rehearse_fill_devices(request, is_cuda, 0, NULL, devices, error);
    if (result < 0)
        return result;
    const struct mt_drive_job job = {
        .argv = argv,
        .environment = given,
        .devices = devices,
        .n_devices = request->settings.n_devices,
        .device_kind = request->settings.device_kind,
        .layer = layer,
    };
    return mt_drive_open(&job, &recorded->result, &recorded->environment, error);
}

int rehearse_open_recorded(const char *command, const struct cli_texts *named,
                           const uint64_t *free_bytes, char *const *argv, char *const *given,
                           struct rehearse_recorded **recorded, char *const **environment)
{
    struct estimate_request request = {0};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    const struct estimate_options options = {.devices = *named};
    struct rehearse_recorded *made = calloc(1, sizeof *made);
    if (!made) {
        cli_complain("out of memory");
        return CLI_EXIT_CANNOT;
    }
    int result = estimate_request_init(&request, &options, &error);
    if (result == 0)
        result = open_devices(&request, free_bytes, argv, given, made, &error);
    estimate_request_finish(&request);
    if (result < 0) {
        free(made);
        return estimate_fail_as(command, &error);
    }
    *recorded = made;
    *environment = made->environment;
    return CLI_EXIT_OK;
}

void rehearse_poll_recorded(struct rehearse_recorded *recorded)
{
    struct mt_rehearsal_status status;
    mt_rehearsal_wait(recorded->result.rehearsal, 0, &status, NULL);
}

/* The account adds up: what a process held is given back by its end, of which there are events. */
void rehearse_read_recorded(struct rehearse_recorded *recorded,
                            struct rehearse_recorded_figures *figures)
{
    const struct mt_rehearsal_event *event;
    struct mt_rehearsal_status status;
    mt_rehearsal_wait(recorded->result.rehearsal, ENDS_SEEN_NS, &status, NULL);
    memset(figures, 0, sizeof *figures);
    for (size_t i = 0; (event = mt_rehearsal_event_at(recorded->result.rehearsal, i)); i++) {
        unsigned device;
        if (event->kind == MT_REHEARSAL_REFUSED)
            figures->n_refusals++;
        if (sscanf(event->place ? event->place : "", "gpu:%u", &device) != 1 ||
            device >= ESTIMATE_DEVICES_MAX || event->flags & MT_REHEARSAL_PLANNED)
            continue;
        uint64_t *held = &figures->held_bytes[device];
        if (event->kind == MT_REHEARSAL_ALLOC)
            *held += event->bytes;
        if (event->kind == MT_REHEARSAL_FREE)
            *held -= event->bytes < *held ? event->bytes : *held;
        if (*held > figures->peak_bytes[device])
            figures->peak_bytes[device] = *held;
    }
}

void rehearse_explain_recorded(const char *command, struct rehearse_recorded *recorded)
{
    struct mt_rehearsal_status status;
    if (mt_rehearsal_wait(recorded->result.rehearsal, 0, &status, NULL) < 0 || !status.n_private ||
        status.n_contexts)
        return;
    cli_complain(
        "%s: %s brings NVIDIA's own runtime with it, linked statically or in a package of "
        "its own, and that asks whether the driver is NVIDIA's: it cannot use devices that "
        "are not there; a build that links libcudart.so can",
        command, status.private_library ? status.private_library : "the program");
}

void rehearse_close_recorded(struct rehearse_recorded *recorded)
{
    if (!recorded)
        return;
    mt_rehearsal_free_environment(recorded->environment);
    mt_drive_result_finish(&recorded->result);
    free(recorded);
}
