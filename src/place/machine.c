/* SPDX-License-Identifier: MIT */
/* What is known of a machine's devices beside their sizes. */
#include "machine.h"

#include <stdlib.h>

#include <memtally/place.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "gpu/gpus.h"

/* A token crosses with its activations, and each number of them is an f32. */
#define ACTIVATION_BYTES 4

static const struct {
    const char *name;
    double seconds;
    double bytes_per_second;
} links[] = {
#define LINK(NAME, name, seconds, speed) {name, seconds, speed},
    MT_PLACE_LINK_LIST(LINK)
#undef LINK
};

const char *mt_place_link_name(enum mt_place_link_kind kind)
{
    return (unsigned)kind < MT_PLACE_LINK_COUNT ? links[kind].name : "?";
}

static double crossing_of(const struct mt_model_description *d, enum mt_place_link_kind kind)
{
    return links[kind].seconds +
           (double)d->embedding_length * ACTIVATION_BYTES / links[kind].bytes_per_second;
}

int mt_place_links(const struct mt_model_description *d, const struct mt_place_options *options,
                   struct mt_place_problem *problem, double **seconds, struct mt_error *error)
{
    size_t n = problem->n_devices;
    problem->crossing_seconds = crossing_of(d, MT_PLACE_LINK_PCIE);
    if (!options->n_links)
        return 0;
    double *between = calloc(n * n, sizeof *between);
    if (!between)
        return mt_out_of_memory(error);
    problem->link_seconds = *seconds = between;
    for (size_t i = 0; i < n * n; i++)
        between[i] = problem->crossing_seconds;
    for (size_t i = 0; i < options->n_links; i++) {
        const struct mt_place_link *link = &options->links[i];
        if (link->a >= n || link->b >= n || link->a == link->b)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                           "there is no link between device %zu and device %zu; name two different "
                           "ones of 0 to %zu",
                           link->a, link->b, n - 1);
        between[link->a * n + link->b] = between[link->b * n + link->a] =
            crossing_of(d, link->kind);
    }
    return 0;
}

void mt_place_speeds(const struct mt_predict_settings *settings, struct mt_place_device *devices)
{
    struct mt_gpu_row row;
    for (size_t d = 0; settings->device_known && d < settings->n_devices; d++)
        if (settings->device_known[d].gpu[0] &&
            !mt_gpu_find(settings->device_known[d].gpu, &row, NULL))
            devices[d].bytes_per_second =
                2e3 * row.gpu.memory_clock_khz * row.gpu.memory_bus_bits / 8;
}
