/* SPDX-License-Identifier: MIT */
/* Dividing layers and each layer: all products of tensor and pipeline parallel sizes that devices
 * which are alike allow, each by an estimate. */
#include <stdlib.h>

#include <memtally/place.h>
#include <memtally/predict.h>
#include <memtally/settings.h>

#include "base/out_of_memory.h"
#include "parallel.h"

static int are_alike(const struct mt_predict_settings *settings)
{
    for (size_t d = 1; d < settings->n_devices; d++)
        if (settings->device_bytes[d] != settings->device_bytes[0] ||
            (settings->device_used_bytes &&
             settings->device_used_bytes[d] != settings->device_used_bytes[0]))
            return 0;
    return 1;
}

/* Leaves out what the engine refuses, as heads that do not divide. */
static void try_way(const struct mt_model *model, const struct mt_predict_settings *given,
                    uint64_t tensor, uint64_t pipeline, struct mt_place_parallel *ways, size_t *n)
{
    struct mt_predict_settings settings = *given;
    struct mt_estimate *estimate = NULL;
    settings.tensor_parallel = tensor;
    settings.pipeline_parallel = pipeline;
    settings.n_devices = (size_t)(tensor * pipeline);
    if (mt_estimate_create(model, &settings, &estimate, NULL))
        return;
    ways[(*n)++] = (struct mt_place_parallel){.tensor = tensor,
                                              .pipeline = pipeline,
                                              .replicas = given->n_devices / settings.n_devices,
                                              .verdict = estimate->verdict,
                                              .pool_tokens = estimate->pool.pool_tokens,
                                              .pool_tokens_low = estimate->pool.pool_tokens_low};
    mt_estimate_destroy(estimate);
}

int mt_place_parallel_ways(const struct mt_model *model, const struct mt_predict_settings *settings,
                           struct mt_place_parallel **ways, size_t *n, struct mt_error *error)
{
    size_t devices = settings->n_devices;
    *n = 0;
    /* The harmonic sum over 64 devices is below 5: that many sizes each. */
    *ways = calloc(devices * 5, sizeof **ways);
    if (!*ways)
        return mt_out_of_memory(error);
    for (uint64_t group = 1; are_alike(settings) && group <= devices; group++)
        for (uint64_t pipeline = 1; pipeline <= group; pipeline++)
            if (group % pipeline == 0 && pipeline <= mt_model_describe(model)->n_layers)
                try_way(model, settings, group / pipeline, pipeline, *ways, n);
    return 0;
}
