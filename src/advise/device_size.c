/* SPDX-License-Identifier: MIT */
/* A program whose flags are not known is tried on devices that limit it in nothing: what it then
 * takes is what a device must have. */
#include "device_size.h"

#include <memtally/gpu.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/search.h"
#include "base/out_of_memory.h"
#include "drive/engines.h"

#define TIMES         16u
#define MOST_BYTES    ((uint64_t)896 << 30) /* of a device whose share a cache fills: addresses */
#define DEFAULT_SHARE 0.9

static int is_budgeted(const char *name)
{
    char share[MT_DRIVE_ENGINE_TEXT];
    const char *engine;
    for (size_t i = 0; (engine = mt_engine_name_at(i)); i++)
        if (strstr(name, engine) && *mt_drive_engine_text(engine, "memory_share.of", share))
            return 1;
    return 0;
}

/* By a program, a script or a module, and not by the folder that it lies in. */
int mt_advise_takes_a_share(char *const *argv)
{
    for (; *argv; argv++) {
        const char *slash = strrchr(*argv, '/');
        const char *name = slash ? slash + 1 : *argv;
        if (is_budgeted(name))
            return 1;
    }
    return 0;
}

/* The share that follows `flag` in a word or in the next one; 0 where there is none. */
static double share_behind(char *const *words, const char *flag)
{
    const char *at = *flag ? strstr(*words, flag) : NULL;
    const char *after = at ? at + strlen(flag) : NULL;
    const char *value = !after ? NULL : *after ? after + (*after == '=') : words[1];
    double share = value ? strtod(value, NULL) : 0;
    return share > 0.01 && share <= 1 ? share : 0;
}

double mt_advise_share_of(char *const *argv)
{
    char flag[MT_DRIVE_ENGINE_TEXT];
    for (; *argv; argv++) {
        double share = share_behind(argv, "\"memory_share\":");
        for (size_t i = 0; share == 0 && mt_engine_name_at(i); i++)
            share = share_behind(
                argv, mt_drive_engine_word(mt_engine_name_at(i), "flags", "memory_share", flag));
        if (share > 0)
            return share;
    }
    return DEFAULT_SHARE;
}

/* The GPU that a device stands for. */
static void name_card(const struct mt_rehearsal_device *device, struct mt_rehearsal_gpu *gpu)
{
    if (!device->gpu || mt_rehearsal_gpu_find(device->gpu, gpu, NULL) < 0)
        mt_rehearsal_gpu_of_size(device->bytes, NULL, gpu, NULL);
}

/* The smallest GPU of the table that has so much and is not older than the asked one; "" if there
 * is none. */
static const char *name_sufficient(uint64_t bytes, const struct mt_rehearsal_device *asked,
                                   struct mt_rehearsal_gpu *best)
{
    struct mt_rehearsal_gpu gpu, old;
    name_card(asked, &old);
    *best = (struct mt_rehearsal_gpu){.memory_bytes = UINT64_MAX};
    for (size_t i = 0; mt_rehearsal_gpu_at(i, &gpu) == 0; i++)
        if (!strcmp(gpu.kind, old.kind) && gpu.capability >= old.capability &&
            gpu.memory_bytes >= bytes && gpu.memory_bytes < best->memory_bytes)
            *best = gpu;
    return best->key;
}

/* How many of the longest requests the cache had room for, as the engine said; 0: it did not. */
static double concurrency_of(struct mt_rehearsal *rehearsal)
{
    struct mt_rehearsal_figure figure;
    double requests = 0;
    for (size_t i = 0; mt_rehearsal_figure_at(rehearsal, i, &figure) == 0; i++)
        if (!strcmp(figure.name, "concurrency") && figure.value > 0)
            requests = figure.value;
    return requests;
}

/* What a place takes at least: all of it, or with a cache for one request of the longest length. */
static uint64_t least_of(const struct mt_tally_place *place, double requests)
{
    uint64_t bytes = place->total_allocated_bytes;
    for (size_t i = 0; requests > 1 && i < place->n_rows; i++)
        if (place->rows[i].category == MT_CATEGORY_KV_CACHE)
            bytes -= (uint64_t)((double)place->rows[i].allocated_bytes * (1 - 1 / requests));
    return bytes;
}

uint64_t mt_advise_least_bytes(const struct mt_tally *tally, double requests)
{
    uint64_t most = 0;
    for (size_t i = 0; i < tally->n_places; i++) {
        const struct mt_tally_place *place = &tally->places[i];
        if (strncmp(place->place, "gpu:", 4) != 0 || place->total_allocated_bytes == MT_UNKNOWN)
            continue;
        uint64_t least = least_of(place, requests);
        most = least > most ? least : most;
    }
    return most;
}

/* What neither a longer context nor more sequences make larger. */
static uint64_t fixed_of(const struct mt_tally_place *place)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < place->n_rows; i++) {
        enum mt_category category = place->rows[i].category;
        if (category == MT_CATEGORY_WEIGHTS || category == MT_CATEGORY_CONTEXT ||
            category == MT_CATEGORY_COMMUNICATION || category == MT_CATEGORY_WORKSPACE)
            bytes += place->rows[i].allocated_bytes;
    }
    return bytes;
}

static void look(const struct mt_drive_job *job, const struct mt_drive_result *result,
                 struct mt_advise_whole *whole)
{
    double requests = whole->is_share ? concurrency_of(result->rehearsal) : 0;
    uint64_t bytes = mt_advise_least_bytes(result->tally, requests);
    snprintf(whole->why, sizeof whole->why, "%.400s", result->why);
    if (result->outcome != MT_DRIVE_RUNS || !bytes || (whole->is_share && requests < 1))
        return;
    whole->is_known = 1;
    whole->least_bytes =
        whole->is_share ? (uint64_t)((double)bytes / mt_advise_share_of(job->argv)) : bytes;
    for (size_t i = 0; i < result->tally->n_places; i++) {
        const struct mt_tally_place *place = &result->tally->places[i];
        if (strncmp(place->place, "gpu:", 4) != 0 || place->total_allocated_bytes == MT_UNKNOWN ||
            place->total_allocated_bytes <= whole->whole_bytes)
            continue;
        whole->whole_bytes = place->total_allocated_bytes;
        whole->fixed_bytes = fixed_of(place);
    }
}

void mt_advise_answer_device_size(const struct mt_drive_job *job,
                                  const struct mt_advise_whole *whole,
                                  struct mt_advise_answer *answer)
{
    struct mt_rehearsal_gpu gpu;
    char size[MT_SIZE_TEXT];
    if (!whole->is_known) {
        mt_advise_answer_note(
            answer,
            *whole->why ? "It does not run on devices with many times the memory either: %s."
                        : "It runs on devices with many times the memory, and does not say how "
                          "much would do.%s",
            whole->why);
        return;
    }
    if (answer->changes.n == MT_ADVISE_CHANGES_MAX)
        return;
    struct mt_advise_change *change = &answer->changes.items[answer->changes.n++];
    const char *name = name_sufficient(whole->least_bytes, &job->devices[0], &gpu);
    *change = (struct mt_advise_change){.capacity_bytes = 0};
    snprintf(change->flags, sizeof change->flags, "a device of %s%s%s%s",
             mt_format_size(whole->least_bytes, size), *name ? " (" : "", name, *name ? ")" : "");
    snprintf(change->instead_of, sizeof change->instead_of, "%s",
             mt_format_size(job->devices[0].bytes, size));
    snprintf(change->costs, sizeof change->costs, "%s",
             whole->is_share
                 ? "with a KV cache for one request of the longest length, and the engine's share "
                   "of the device"
                 : "what it takes without a limit");
}

/* The same GPUs with so much memory that nothing limits the program. */
static void enlarge(const struct mt_drive_job *job, struct mt_rehearsal_device *devices,
                    struct mt_rehearsal_gpu *gpus)
{
    int is_share = mt_advise_takes_a_share(job->argv);
    for (size_t i = 0; i < job->n_devices; i++) {
        devices[i] = job->devices[i];
        devices[i].bytes *= TIMES;
        if (is_share && devices[i].bytes > MOST_BYTES)
            devices[i].bytes = MOST_BYTES;
        name_card(&job->devices[i], &gpus[i]);
        if (!devices[i].gpu)
            devices[i].gpu = gpus[i].key;
    }
}

int mt_advise_look_at_whole(const struct mt_drive_job *job, struct mt_advise_whole *whole,
                            struct mt_error *error)
{
    struct mt_rehearsal_gpu *gpus = calloc(job->n_devices + 1, sizeof *gpus);
    struct mt_rehearsal_device *devices = calloc(job->n_devices + 1, sizeof *devices);
    struct mt_drive_result *result = calloc(1, sizeof *result);
    struct mt_drive_job larger = *job;
    int is_possible = devices && gpus && result;
    int code = is_possible ? 0 : mt_out_of_memory(error);
    *whole = (struct mt_advise_whole){.is_share = mt_advise_takes_a_share(job->argv)};
    if (is_possible && job->n_devices) {
        enlarge(job, devices, gpus);
        larger.devices = devices;
        larger.folder = NULL;
        larger.hides_output = 1;
        larger.label = "on larger devices";
        code = mt_drive_run(&larger, result, error);
        if (code == 0)
            look(job, result, whole);
        mt_drive_result_finish(result);
    }
    free(result);
    free(devices);
    free(gpus);
    return code;
}
