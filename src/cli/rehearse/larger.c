/* SPDX-License-Identifier: MIT */
/* A program whose flags are not known is tried on devices that limit it in nothing: what it then
 * takes is what a device must have. */
#include "cli/rehearse/larger.h"

#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMES         16u
#define MOST_BYTES    ((uint64_t)896 << 30) /* of a device whose share a cache fills: addresses */
#define DEFAULT_SHARE 0.9

/* Engines whose cache is a share of the device: by a program, a script or a module, and not by the
 * folder that it lies in. */
static int takes_a_share(char *const *argv)
{
    for (; *argv; argv++) {
        const char *slash = strrchr(*argv, '/');
        const char *name = slash ? slash + 1 : *argv;
        if (strstr(name, "vllm") || strstr(name, "sglang"))
            return 1;
    }
    return 0;
}

double rehearse_share_of(char *const *argv)
{
    static const char *const words[] = {"--gpu-memory-utilization", "--mem-fraction-static",
                                        "\"memory_share\":"};
    for (; *argv; argv++) {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            const char *at = strstr(*argv, words[i]);
            const char *after = at ? at + strlen(words[i]) : NULL;
            const char *value = !after ? NULL : *after ? after + (*after == '=') : argv[1];
            double share = value ? strtod(value, NULL) : 0;
            if (share > 0.01 && share <= 1)
                return share;
        }
    }
    return DEFAULT_SHARE;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* The GPU that a device of this size is taken for. */
static void name_nearest(uint64_t bytes, struct mt_rehearse_gpu *nearest)
{
    struct mt_rehearse_gpu gpu;
    mt_rehearse_gpu_at(0, nearest);
    for (size_t i = 1; mt_rehearse_gpu_at(i, &gpu) == 0; i++)
        if (distance(gpu.memory_bytes, bytes) < distance(nearest->memory_bytes, bytes))
            *nearest = gpu;
}

/* The smallest GPU of the table that has so much; "" where none has. */
static const char *name_sufficient(uint64_t bytes, struct mt_rehearse_gpu *best)
{
    struct mt_rehearse_gpu gpu;
    *best = (struct mt_rehearse_gpu){.memory_bytes = UINT64_MAX};
    for (size_t i = 0; mt_rehearse_gpu_at(i, &gpu) == 0; i++)
        if (gpu.memory_bytes >= bytes && gpu.memory_bytes < best->memory_bytes)
            *best = gpu;
    return best->key;
}

/* How many of the longest requests the cache had room for, as the engine said; 0: it did not. */
static double concurrency_of(struct mt_rehearsal *rehearsal)
{
    struct mt_rehearse_figure figure;
    double requests = 0;
    for (size_t i = 0; mt_rehearse_figure_at(rehearsal, i, &figure) == 0; i++)
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

uint64_t rehearse_least_bytes(const struct mt_tally *tally, double requests)
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

static void tell(const struct rehearse_job *job, const struct rehearse_result *result,
                 struct rehearse_told *told)
{
    struct mt_rehearse_gpu gpu;
    struct rehearse_change *change = &told->changes.items[0];
    char size[MT_SIZE_TEXT];
    int is_share = takes_a_share(job->argv);
    double requests = is_share ? concurrency_of(result->rehearsal) : 0;
    uint64_t bytes = rehearse_least_bytes(result->tally, requests);
    if (result->outcome != REHEARSE_RUNS || !bytes || (is_share && requests < 1)) {
        snprintf(told->note, sizeof told->note,
                 "On devices of many times the memory it does not run either, or does not say how "
                 "much would do.");
        return;
    }
    if (is_share)
        bytes = (uint64_t)((double)bytes / rehearse_share_of(job->argv));
    const char *name = name_sufficient(bytes, &gpu);
    snprintf(change->flags, sizeof change->flags, "a device of %s%s%s%s",
             mt_format_size(bytes, size), *name ? " (" : "", name, *name ? ")" : "");
    snprintf(change->instead_of, sizeof change->instead_of, "%s",
             mt_format_size(job->devices[0].bytes, size));
    change->costs = is_share ? "with a KV cache for one request of the longest length, and the "
                               "engine's share of the device"
                             : "so much it takes where nothing limits it";
    told->changes.n = 1;
}

/* The same GPUs with so much memory that nothing limits the program. */
static void enlarge(const struct rehearse_job *job, struct mt_rehearse_device *devices,
                    struct mt_rehearse_gpu *gpus)
{
    int is_share = takes_a_share(job->argv);
    for (size_t i = 0; i < job->n_devices; i++) {
        devices[i] = job->devices[i];
        devices[i].bytes *= TIMES;
        if (is_share && devices[i].bytes > MOST_BYTES)
            devices[i].bytes = MOST_BYTES;
        name_nearest(job->devices[i].bytes, &gpus[i]);
        if (!devices[i].gpu)
            devices[i].gpu = gpus[i].key;
    }
}

void rehearse_find_larger(const struct rehearse_job *job, struct rehearse_told *told)
{
    struct mt_rehearse_gpu *gpus = calloc(job->n_devices + 1, sizeof *gpus);
    struct mt_rehearse_device *devices = calloc(job->n_devices + 1, sizeof *devices);
    struct rehearse_result *result = calloc(1, sizeof *result);
    struct rehearse_job larger = *job;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    int is_possible = devices && gpus && result && job->n_devices;
    if (is_possible)
        enlarge(job, devices, gpus);
    larger.devices = devices;
    larger.folder = NULL;
    if (is_possible && rehearse_run(&larger, result, &error) == 0) {
        tell(job, result, told);
        rehearse_result_finish(result);
    } else if (is_possible) {
        snprintf(told->note, sizeof told->note, "No larger device was tried: %s.", error.text);
    }
    free(result);
    free(devices);
    free(gpus);
}
