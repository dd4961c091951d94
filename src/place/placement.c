/* SPDX-License-Identifier: MIT */
/* What a placement comes to: bytes on each device, crossings, and bounds for any other. */
#include "internal.h"

#include <stdlib.h>

uint64_t mt_place_bytes(const struct mt_place_problem *problem)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < problem->n_units; i++)
        bytes += mt_place_unit_bytes(&problem->units[i]);
    return bytes;
}

static uint32_t most_experts(const struct mt_place_problem *problem)
{
    uint32_t most = 0;
    for (size_t i = 0; i < problem->n_units; i++)
        if (problem->units[i].experts > most)
            most = problem->units[i].experts;
    return most;
}

struct mt_placement_made *mt_placement_new(const struct mt_place_problem *problem, int apart)
{
    struct mt_placement_made *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    size_t n = problem->n_units;
    made->it.experts_most = most_experts(problem);
    made->unit_device = calloc(2 * n, sizeof *made->unit_device);
    made->devices = calloc(problem->n_devices, sizeof *made->devices);
    size_t cells = apart ? n * made->it.experts_most : 0;
    made->expert_at = cells ? calloc(cells, sizeof *made->expert_at) : NULL;
    if (!made->unit_device || !made->devices || (cells && !made->expert_at)) {
        mt_placement_destroy(&made->it);
        return NULL;
    }
    made->expert_device = made->unit_device + n;
    for (size_t i = 0; i < 2 * n; i++)
        made->unit_device[i] = MT_PLACE_ANY;
    made->it.n_units = n;
    made->it.unit_device = made->unit_device;
    made->it.expert_device = made->expert_device;
    made->it.expert_at = made->expert_at;
    made->it.n_devices = problem->n_devices;
    made->it.devices = made->devices;
    return made;
}

void mt_placement_destroy(struct mt_placement *placement)
{
    struct mt_placement_made *made = (struct mt_placement_made *)placement;
    if (!made)
        return;
    free(made->unit_device);
    free(made->expert_at);
    free(made->devices);
    free(made);
}

/* Of `all` experts `used` are drawn: the chance that none of `some` is among them. */
static double chance_of_none(uint32_t all, uint32_t used, uint32_t some)
{
    double chance = 1;
    for (uint32_t i = 0; i < used; i++) {
        if (some + i >= all)
            return 0;
        chance *= (double)(all - some - i) / (double)(all - i);
    }
    return chance;
}

/* A token leaves for each device that has an expert it wants, and comes back. All experts are
 * wanted alike. */
static double crossings_to_experts(const struct mt_placement_made *made,
                                   const struct mt_place_unit *unit, size_t index)
{
    int home = made->unit_device[index];
    if (!unit->experts)
        return 0;
    if (made->expert_device[index] != MT_PLACE_ANY)
        return made->expert_device[index] == home ? 0 : 2;
    const int *at = made->expert_at + index * made->it.experts_most;
    double crossings = 0;
    for (int d = MT_PLACE_HOST; d < (int)made->it.n_devices; d++) {
        uint32_t there = 0;
        for (uint32_t e = 0; e < unit->experts; e++)
            there += at[e] == d;
        if (there && d != home)
            crossings += 2 * (1 - chance_of_none(unit->experts, unit->experts_used, there));
    }
    return crossings;
}

static double count_crossings(const struct mt_place_problem *problem,
                              const struct mt_placement_made *made)
{
    double crossings = 0;
    size_t n = problem->n_units;
    for (size_t i = 0; i < n; i++) {
        crossings += i && made->unit_device[i] != made->unit_device[i - 1];
        crossings += crossings_to_experts(made, &problem->units[i], i);
    }
    return crossings +
           (problem->output_is_input && made->unit_device[0] != made->unit_device[n - 1]);
}

static void add_experts(struct mt_placement_made *made, const struct mt_place_unit *unit,
                        size_t index)
{
    if (!unit->experts)
        return;
    uint64_t each = unit->expert_bytes / unit->experts;
    int together = made->expert_device[index];
    for (uint32_t e = 0; e < unit->experts; e++) {
        int d = together != MT_PLACE_ANY ? together
                                         : made->expert_at[index * made->it.experts_most + e];
        /* What does not divide evenly is with the first expert. */
        uint64_t bytes = each + (e ? 0 : unit->expert_bytes - each * unit->experts);
        if (d < 0) {
            made->it.host_bytes += bytes;
            continue;
        }
        made->devices[d].expert_bytes += bytes;
        made->devices[d].experts++;
    }
}

static void add_unit(struct mt_placement_made *made, const struct mt_place_unit *unit, size_t index)
{
    int d = made->unit_device[index];
    int is_layer = unit->layer != UINT32_MAX;
    if (d < 0) {
        made->it.host_bytes += unit->dense_bytes + unit->cache_bytes + unit->work_bytes;
        made->it.host_layers += (uint64_t)is_layer;
    } else {
        struct mt_placement_device *device = &made->devices[d];
        if (!device->n_units++)
            device->first_unit = index;
        device->dense_bytes += unit->dense_bytes;
        device->cache_bytes += unit->cache_bytes;
        device->overhead_bytes += unit->work_bytes;
        device->layers += (uint64_t)is_layer;
        made->it.host_expert_layers += unit->experts && made->expert_device[index] == MT_PLACE_HOST;
    }
    add_experts(made, unit, index);
}

/* Tokens that a device still has room for; UINT64_MAX where they take nothing there. */
static uint64_t tokens_of(const struct mt_place_problem *problem,
                          const struct mt_placement_made *made, size_t device)
{
    uint64_t each = 0;
    for (size_t i = 0; i < problem->n_units; i++)
        if (made->unit_device[i] == (int)device)
            each += problem->units[i].token_bytes;
    uint64_t limit = problem->devices[device].limit_bytes;
    uint64_t used = made->devices[device].used_bytes;
    return !each ? UINT64_MAX : used >= limit ? 0 : (limit - used) / each;
}

void mt_placement_count(const struct mt_place_problem *problem, struct mt_placement_made *made)
{
    struct mt_placement *it = &made->it;
    for (size_t i = 0; i < problem->n_units; i++)
        add_unit(made, &problem->units[i], i);
    it->further_tokens = UINT64_MAX;
    size_t in_use = 0;
    for (size_t d = 0; d < problem->n_devices; d++) {
        struct mt_placement_device *device = &made->devices[d];
        const struct mt_place_device *given = &problem->devices[d];
        int is_used = device->n_units || device->experts;
        in_use += (size_t)is_used;
        device->overhead_bytes += is_used ? given->overhead_bytes : 0;
        device->used_bytes = device->dense_bytes + device->expert_bytes + device->cache_bytes +
                             device->overhead_bytes;
        device->expected_bytes = device->used_bytes;
        double share = (double)device->used_bytes / (double)given->capacity_bytes;
        it->highest_share = share > it->highest_share ? share : it->highest_share;
        uint64_t tokens = tokens_of(problem, made, d);
        it->further_tokens = tokens < it->further_tokens ? tokens : it->further_tokens;
    }
    it->crossings = count_crossings(problem, made);
    uint64_t bytes = mt_place_bytes(problem) - it->host_bytes;
    it->least_devices = mt_place_least_devices(problem, bytes);
    it->least_share = mt_place_least_share(problem, bytes, in_use);
}

/* ---- bounds that hold for any placement on the devices ---- */

static int more_first(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return *x < *y ? 1 : *x > *y ? -1 : 0;
}

size_t mt_place_least_devices(const struct mt_place_problem *problem, uint64_t bytes)
{
    uint64_t *rooms = calloc(problem->n_devices, sizeof *rooms);
    uint64_t room = 0;
    size_t n = 0;
    for (size_t d = 0; rooms && d < problem->n_devices; d++) {
        const struct mt_place_device *device = &problem->devices[d];
        rooms[d] = device->limit_bytes > device->overhead_bytes
                       ? device->limit_bytes - device->overhead_bytes
                       : 0;
    }
    if (rooms)
        qsort(rooms, problem->n_devices, sizeof *rooms, more_first);
    while (rooms && n < problem->n_devices && room < bytes)
        room += rooms[n++];
    free(rooms);
    return n;
}

double mt_place_least_share(const struct mt_place_problem *problem, uint64_t bytes, size_t devices)
{
    uint64_t *capacities = calloc(problem->n_devices, sizeof *capacities);
    uint64_t least_overhead = UINT64_MAX;
    double capacity = 0;
    if (!capacities || !devices) {
        free(capacities);
        return 0;
    }
    for (size_t d = 0; d < problem->n_devices; d++) {
        capacities[d] = problem->devices[d].capacity_bytes;
        if (problem->devices[d].overhead_bytes < least_overhead)
            least_overhead = problem->devices[d].overhead_bytes;
    }
    qsort(capacities, problem->n_devices, sizeof *capacities, more_first);
    for (size_t d = 0; d < devices; d++)
        capacity += (double)capacities[d];
    free(capacities);
    return ((double)bytes + (double)devices * (double)least_overhead) / capacity;
}
