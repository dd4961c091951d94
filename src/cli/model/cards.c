/* SPDX-License-Identifier: MIT */
/* Which cards devices are: by their names, by a generation, or left to what their size mostly is.
 */
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "cli/card_store.h"
#include "cli/model/model.h"

int estimate_take_kinds(struct estimate_request *request, struct mt_error *error)
{
    struct mt_predict_settings *settings = &request->settings;
    for (size_t i = 0; i < settings->n_devices; i++) {
        struct mt_rehearsal_gpu gpu;
        if (!*request->device_gpus[i] ||
            mt_rehearsal_gpu_find(request->device_gpus[i], &gpu, NULL) < 0)
            continue;
        memcpy(request->device_known[i].gpu, request->device_gpus[i], ESTIMATE_GPU_BYTES);
        const char *const *kind = estimate_device_kinds;
        while (*kind && strcmp(*kind, gpu.kind) != 0)
            kind++;
        if (!settings->device_kind)
            settings->device_kind = *kind;
        else if (strcmp(settings->device_kind, gpu.kind) != 0 &&
                 strcmp(settings->device_kind, "vulkan") != 0)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                           "estimate: '%s' is driven by %s, not by %s; name devices of one kind",
                           gpu.key, gpu.kind, settings->device_kind);
    }
    return 0;
}

static void take(const struct mt_calibration *card, struct mt_device_known *known)
{
    known->context_bytes = card->context_bytes;
    if (card->graph_node_bytes != MT_UNKNOWN)
        known->graph_node_bytes = card->graph_node_bytes;
}

int estimate_take_measured(struct estimate_request *request, struct mt_error *error)
{
    struct cli_cards cards;
    struct mt_rehearsal_gpu gpu;
    int is_wanted = request->is_here;
    for (size_t i = 0; i < request->settings.n_devices; i++)
        is_wanted |= request->device_known[i].gpu[0] != '\0';
    int result = is_wanted ? cli_cards_load(&cards, error) : 0;
    if (result < 0 || !is_wanted)
        return result;
    for (size_t i = 0; i < request->settings.n_devices; i++) {
        struct mt_device_known *known = &request->device_known[i];
        const struct mt_calibration *card = NULL;
        if (known->gpu[0] && mt_rehearsal_gpu_find(known->gpu, &gpu, NULL) == 0)
            card = cli_cards_find(&cards, gpu.key, 0);
        else if (request->is_here && !known->gpu[0])
            card = cli_cards_find(&cards, NULL, request->device_bytes[i]);
        if (card && !known->gpu[0] && mt_rehearsal_gpu_find(card->name, &gpu, NULL) == 0)
            memcpy(known->gpu, gpu.key, sizeof gpu.key);
        if (card)
            take(card, known);
    }
    return 0;
}

/* The number of a card's architecture, as its kind writes it. */
static void number_of(const struct mt_rehearsal_gpu *gpu, char number[16])
{
    if (strcmp(gpu->kind, "rocm") == 0)
        snprintf(number, 16, "gfx%x", gpu->capability & 0xFFFF);
    else
        snprintf(number, 16, "%u.%u", gpu->capability / 10 % 100, gpu->capability % 10);
}

static int fail_generation(const struct mt_rehearsal_gpu *gpu, const char *generation,
                           struct mt_error *error)
{
    char number[16];
    number_of(gpu, number);
    return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                   "estimate: %s is a GPU of generation %s (%s), not of '%.40s'; leave one of "
                   "'--device' and '--generation' out",
                   gpu->key, gpu->generation, number, generation);
}

/* A named card of AMD's must be of the asked generation. */
static int check_amd(const struct estimate_request *request, size_t device, const char *generation,
                     struct mt_error *error)
{
    struct mt_rehearsal_gpu own;
    char number[16];
    const char *name = request->device_gpus[device];
    if (!generation || !*name || mt_rehearsal_gpu_find(name, &own, NULL) < 0 ||
        strcmp(own.kind, "rocm") != 0)
        return 0;
    number_of(&own, number);
    if (!strcasecmp(own.generation, generation) || !strcasecmp(number, generation))
        return 0;
    return fail_generation(&own, generation, error);
}

/* The card of a device that only has a size, by the generation where one is given; a named card
 * must be of it. */
static int choose_card(struct estimate_request *request, size_t device, const char *generation,
                       int must, struct mt_error *error)
{
    struct mt_rehearsal_gpu gpu, own;
    char *name = request->device_gpus[device];
    uint64_t bytes = request->device_bytes[device];
    int is_named = *name != '\0';
    int result = mt_rehearsal_gpu_of_size(bytes, generation, &gpu, error);
    if (result < 0)
        return must ? result : 0;
    if (is_named && mt_rehearsal_gpu_find(name, &own, NULL) == 0) {
        int is_of_it = !generation || !strcmp(own.generation, gpu.generation);
        return is_of_it ? 0 : fail_generation(&own, generation, error);
    }
    memcpy(name, gpu.key, sizeof gpu.key);
    if (generation)
        memcpy(request->device_known[device].gpu, gpu.key, sizeof gpu.key);
    return 0;
}

int estimate_choose_cards(struct estimate_request *request, const char *generation, int must,
                          struct mt_error *error)
{
    const char *kind = request->settings.device_kind;
    int result = 0;
    if (kind && strcmp(kind, "cuda") != 0 && must)
        return mt_fail(
            error, MT_EARG, MT_NO_OFFSET,
            "estimate: memtally rehearses a program on CUDA on NVIDIA's GPUs, and these are "
            "driven by %s; name others with '--device'",
            kind);
    for (size_t i = 0;
         kind && strcmp(kind, "rocm") == 0 && !result && i < request->settings.n_devices; i++)
        result = check_amd(request, i, generation, error);
    if (kind && strcmp(kind, "cuda") != 0)
        return result;
    for (size_t i = 0; result == 0 && i < request->settings.n_devices; i++)
        result = choose_card(request, i, generation, must, error);
    return result;
}
