/* SPDX-License-Identifier: MIT */
/* What leaves the devices where not all has room: routed experts first, because a token uses few of
 * them, then whole layers from the first on, as llama.cpp does; and what is missing where even that
 * does not help. */
#include "internal.h"

#include <inttypes.h>
#include <memtally/units.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"

struct leaving_search {
    const struct mt_place_problem *problem;
    const struct mt_chain *chain;
    const struct mt_place_unit *units; /* of the chain */
};

/* Experts leave from the first layer of a stretch on. The number of those that do, -1 where all are
 * too few. */
static int experts_that_leave(const struct leaving_search *search, size_t device, size_t from,
                              size_t to, uint64_t *bytes)
{
    int64_t room = mt_chain_room(search->chain, device, MT_SHARE_ALL);
    int64_t missing = (int64_t)(search->chain->bytes[to] - search->chain->bytes[from]) - room;
    int n = 0;
    *bytes = 0;
    if (room < 0 || (missing > 0 && !search->problem->experts_may_leave))
        return -1;
    for (size_t i = from; i < to && missing > 0; i++) {
        missing -= (int64_t)search->units[i].expert_bytes;
        *bytes += search->units[i].expert_bytes;
        n += search->units[i].experts > 0;
    }
    return missing > 0 ? -1 : n;
}

static double bytes_that_leave(const void *argument, size_t device, size_t from, size_t to)
{
    uint64_t bytes;
    int n = experts_that_leave(argument, device, from, to, &bytes);
    return n < 0 ? -1 : (double)bytes;
}

static int are_equal(const struct mt_place_unit *units, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (units[i].expert_bytes && bytes && units[i].expert_bytes != bytes)
            return 0;
        bytes = units[i].expert_bytes ? units[i].expert_bytes : bytes;
    }
    return 1;
}

/* What units before `left` keep on the device of the first unit that stays: the embedding, caches,
 * and room for the weights of one of them. */
static void keep_for_the_host(const struct mt_place_problem *problem, size_t left,
                              struct mt_place_unit *first)
{
    uint64_t most = 0;
    for (size_t i = 1; i < left; i++) {
        uint64_t bytes = problem->units[i].dense_bytes + problem->units[i].expert_bytes;
        most = bytes > most ? bytes : most;
        first->cache_bytes += problem->units[i].cache_bytes;
        first->token_bytes += problem->units[i].token_bytes;
    }
    first->work_bytes += most + mt_place_unit_bytes(&problem->units[0]);
    if (first->pinned == MT_PLACE_ANY)
        first->pinned = problem->units[0].pinned;
}

struct mt_place_unit *mt_place_units_that_stay(const struct mt_place_problem *problem, size_t left,
                                               const int *experts)
{
    size_t n = problem->n_units - left;
    struct mt_place_unit *units = calloc(n, sizeof *units);
    if (!units)
        return NULL;
    memcpy(units, problem->units + left, n * sizeof *units);
    for (size_t i = 0; experts && i < n; i++)
        if (experts[left + i])
            units[i].expert_bytes = 0;
    if (left && problem->host_keeps_only)
        keep_for_the_host(problem, left, &units[0]);
    return units;
}

/* The split of units [left, n) with which the fewest bytes of experts leave. */
static int leave_experts(const struct mt_place_problem *problem, size_t left,
                         struct mt_place_leaving *leaving, struct mt_error *error)
{
    struct mt_chain chain;
    struct mt_chain_split split = {0};
    struct mt_place_unit *units = mt_place_units_that_stay(problem, left, NULL);
    if (!units)
        return mt_out_of_memory(error);
    int result = mt_chain_init(&chain, problem, units, problem->n_units - left, error);
    if (result) {
        free(units);
        return result;
    }
    struct leaving_search search = {problem, &chain, units};
    result = mt_chain_split_init(&split, &chain, error);
    if (!result)
        result = mt_chain_cheapest(&chain, problem->n_devices, bytes_that_leave, &search, &split);
    memset(leaving->experts, 0, problem->n_units * sizeof *leaving->experts);
    for (size_t s = 0; result == 1 && s < split.n; s++) {
        size_t from = s ? split.end[s - 1] : 0;
        uint64_t bytes;
        int n = experts_that_leave(&search, split.device[s], from, split.end[s], &bytes);
        for (size_t i = from; i < split.end[s] && n > 0; i++)
            if (units[i].experts) {
                leaving->experts[left + i] = 1;
                n--;
            }
    }
    leaving->units = left;
    leaving->is_best = are_equal(units, chain.n);
    mt_chain_split_finish(&split);
    mt_chain_finish(&chain);
    free(units);
    return result;
}

/* Whether units [left, n) fit, with no experts where these may leave. */
static int fit_without(const struct mt_place_problem *problem, size_t left, struct mt_error *error)
{
    struct mt_chain chain;
    struct mt_chain_split split = {0};
    const struct mt_chain_bounds bounds = {MT_SHARE_ALL, 0, problem->n_devices};
    struct mt_place_unit *units = mt_place_units_that_stay(problem, left, NULL);
    if (!units)
        return mt_out_of_memory(error);
    for (size_t i = 0; problem->experts_may_leave && i < problem->n_units - left; i++)
        units[i].expert_bytes = 0;
    int result = mt_chain_init(&chain, problem, units, problem->n_units - left, error);
    if (!result) {
        result = mt_chain_split_init(&split, &chain, error);
        if (!result)
            result = mt_chain_fill(&chain, &bounds, &split);
        mt_chain_split_finish(&split);
        mt_chain_finish(&chain);
    }
    free(units);
    return result;
}

int mt_place_leave(const struct mt_place_problem *problem, struct mt_place_leaving *leaving,
                   struct mt_error *error)
{
    size_t last = 0;
    size_t fits = 0;
    leaving->experts = calloc(problem->n_units, sizeof *leaving->experts);
    if (!leaving->experts)
        return mt_out_of_memory(error);
    /* What is pinned stays. */
    while (last + 1 < problem->n_units &&
           (problem->units[last].pinned == MT_PLACE_ANY || (!last && problem->host_keeps_only)))
        last++;
    int result = fit_without(problem, 0, error);
    if (!result && problem->layers_may_leave) {
        size_t fails = 0;
        result = fit_without(problem, last, error);
        fits = last;
        while (result == 1 && fails + 1 < fits) {
            size_t middle = fails + (fits - fails) / 2;
            int found = fit_without(problem, middle, error);
            if (found < 0)
                return found;
            *(found ? &fits : &fails) = middle;
        }
    }
    return result == 1 ? leave_experts(problem, fits, leaving, error) : result;
}

/* ---- what is missing ---- */

/* Whether it fits with so many bytes more on each device. */
static int fits_with(const struct mt_place_problem *problem, uint64_t more)
{
    struct mt_place_device *devices = calloc(problem->n_devices, sizeof *devices);
    struct mt_place_problem larger = *problem;
    int result = devices != NULL;
    for (size_t d = 0; devices && d < problem->n_devices; d++) {
        devices[d] = problem->devices[d];
        devices[d].capacity_bytes += more;
        devices[d].limit_bytes += more;
    }
    larger.devices = devices;
    result = result && fit_without(&larger, 0, NULL) == 1;
    free(devices);
    return result;
}

int mt_place_refuse(const struct mt_place_problem *problem, struct mt_error *error)
{
    char whole[MT_SIZE_TEXT], room_text[MT_SIZE_TEXT], more_text[MT_SIZE_TEXT];
    uint64_t bytes = mt_place_bytes(problem);
    uint64_t room = 0;
    uint64_t fails = 0;
    uint64_t fits = bytes;
    for (size_t d = 0; d < problem->n_devices; d++) {
        const struct mt_place_device *device = &problem->devices[d];
        if (device->overhead_bytes > fits - bytes)
            fits = bytes + device->overhead_bytes;
        if (device->limit_bytes > device->overhead_bytes)
            room += device->limit_bytes - device->overhead_bytes;
    }
    if (!fits_with(problem, fits))
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                       "no placement keeps to the pins, however large the devices are");
    while (fails + 1 < fits) {
        uint64_t middle = fails + (fits - fails) / 2;
        *(fits_with(problem, middle) ? &fits : &fails) = middle;
    }
    mt_format_size(bytes, whole);
    mt_format_size(room, room_text);
    mt_format_size(fits, more_text);
    return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                   "it does not fit: the model takes %s (%" PRIu64
                   " B), and %zu device%s %s for it; with %s (%" PRIu64
                   " B) more on each device it does",
                   whole, bytes, problem->n_devices, problem->n_devices == 1 ? " has" : "s have",
                   room_text, more_text, fits);
}
