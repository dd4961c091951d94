/* SPDX-License-Identifier: MIT */
/* What a placement comes to: bytes on each device, crossings, and bounds for any other. */
#include "internal.h"

#include <stdlib.h>

#include "base/invariant.h"

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

/* A token draws `used` of `all` experts one after the other; `weight` is the weight of all. Returns
 * the chance that it draws none of `some`, which have `their` weight. What was drawn is taken to
 * have had the mean weight of those beside them, which is exact where all are used alike. */
static double chance_of_none(uint32_t all, double weight, uint32_t used, uint32_t some,
                             double their)
{
    double chance = 1;
    if (some + used > all)
        return 0;
    for (uint32_t i = 0; i < used && weight > 0; i++)
        chance *= (weight - their) / weight * (1 - (double)i / (all - some)) /
                  (1 - (double)i / (double)all);
    return chance;
}

const double *mt_place_use_of(const struct mt_place_problem *problem,
                              const struct mt_placement *placement, size_t index)
{
    const double *row =
        problem->expert_use ? problem->expert_use + index * placement->experts_most : NULL;
    double sum = 0;
    for (uint32_t e = 0; row && e < problem->units[index].experts; e++)
        sum += row[e];
    return sum > 0 ? row : NULL;
}

/* Where a unit is computed. */
static int home_of(const struct mt_place_problem *problem, const struct mt_placement_made *made,
                   size_t index)
{
    return mt_place_is_left(made->unit_device[index]) && problem->host_keeps_only
               ? made->unit_device[0]
               : made->unit_device[index];
}

/* A token leaves for each device that has an expert it wants, and comes back. */
static double crossings_to_experts(const struct mt_place_problem *problem,
                                   const struct mt_placement_made *made, size_t index)
{
    const struct mt_place_unit *unit = &problem->units[index];
    int home = made->unit_device[index];
    if (!unit->experts || mt_place_is_left(home))
        return 0;
    if (made->expert_device[index] != MT_PLACE_ANY)
        return made->expert_device[index] == home ? 0 : 2;
    const int *at = made->expert_at + index * made->it.experts_most;
    double crossings = 0;
    double weight = 0;
    const double *use = mt_place_use_of(problem, &made->it, index);
    for (uint32_t e = 0; e < unit->experts; e++)
        weight += use ? use[e] : 1;
    for (int d = MT_PLACE_DISK; d < (int)made->it.n_devices; d++) {
        uint32_t there = 0;
        double their = 0;
        for (uint32_t e = 0; e < unit->experts; e++) {
            there += at[e] == d;
            their += at[e] != d ? 0 : use ? use[e] : 1;
        }
        if (there && d != home)
            crossings +=
                2 * (1 - chance_of_none(unit->experts, weight, unit->experts_used, there, their));
    }
    return crossings;
}

static double count_crossings(const struct mt_place_problem *problem,
                              const struct mt_placement_made *made)
{
    double crossings = 0;
    size_t n = problem->n_units;
    for (size_t i = 0; i < n; i++) {
        crossings += i && home_of(problem, made, i) != home_of(problem, made, i - 1);
        crossings += crossings_to_experts(problem, made, i);
    }
    return crossings +
           (problem->output_is_input && made->unit_device[0] != made->unit_device[n - 1]);
}

/* The seconds on the links of the path. Nobody knows which links routed experts cross. */
static double count_link_seconds(const struct mt_place_problem *problem,
                                 const struct mt_placement_made *made)
{
    const int *device = made->unit_device;
    size_t n = problem->n_units;
    double seconds = 0;
    for (size_t i = 1; i < n; i++)
        if (device[i] != device[i - 1] && device[i] >= 0 && device[i - 1] >= 0)
            seconds += mt_place_link_seconds(problem, (size_t)device[i - 1], (size_t)device[i]);
    if (problem->output_is_input && device[0] != device[n - 1] && device[0] >= 0 &&
        device[n - 1] >= 0)
        seconds += mt_place_link_seconds(problem, (size_t)device[n - 1], (size_t)device[0]);
    return seconds;
}

double mt_place_read_seconds(const struct mt_place_problem *problem, size_t device,
                             const struct mt_place_unit *unit)
{
    double used = unit->experts ? (double)unit->experts_used / (double)unit->experts : 0;
    double bytes =
        (double)unit->dense_bytes + (double)unit->cache_bytes + (double)unit->expert_bytes * used;
    double speed = problem->devices[device].bytes_per_second;
    return bytes / (speed > 0 ? speed : 1e12);
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
            *(d == MT_PLACE_DISK ? &made->it.disk_bytes : &made->it.host_bytes) += bytes;
            continue;
        }
        made->devices[d].expert_bytes += bytes;
        made->devices[d].experts++;
    }
}

/* What a unit that left has where it lies, and where it is computed. */
static void add_left(const struct mt_place_problem *problem, struct mt_placement_made *made,
                     const struct mt_place_unit *unit, size_t index)
{
    int at = made->unit_device[index];
    made->it.host_layers += unit->layer != UINT32_MAX;
    *(at == MT_PLACE_DISK ? &made->it.disk_bytes : &made->it.host_bytes) += unit->dense_bytes;
    if (problem->host_keeps_only)
        made->devices[made->unit_device[0]].cache_bytes += unit->cache_bytes;
    else
        made->it.host_bytes += unit->cache_bytes;
}

/* Room for one unit at a time, where what left is computed. */
static void add_room_for_copies(const struct mt_place_problem *problem,
                                struct mt_placement_made *made)
{
    uint64_t most = 0;
    for (size_t i = 0; i < problem->n_units; i++) {
        uint64_t bytes = problem->units[i].dense_bytes + problem->units[i].expert_bytes;
        if (mt_place_is_left(made->unit_device[i]) && bytes > most)
            most = bytes;
    }
    if (problem->host_keeps_only && most)
        made->devices[made->unit_device[0]].overhead_bytes += most;
}

static void add_unit(const struct mt_place_problem *problem, struct mt_placement_made *made,
                     const struct mt_place_unit *unit, size_t index)
{
    int d = made->unit_device[index];
    int is_layer = unit->layer != UINT32_MAX;
    if (d < 0) {
        add_left(problem, made, unit, index);
    } else {
        struct mt_placement_device *device = &made->devices[d];
        if (!device->n_units++)
            device->first_unit = index;
        device->dense_bytes += unit->dense_bytes;
        device->cache_bytes += unit->cache_bytes;
        device->overhead_bytes += unit->work_bytes;
        device->layers += (uint64_t)is_layer;
        made->it.host_expert_layers +=
            unit->experts && mt_place_is_left(made->expert_device[index]);
    }
    add_experts(made, unit, index);
}

/* Tokens that a device still has room for; UINT64_MAX where they take nothing there. */
static uint64_t tokens_of(const struct mt_place_problem *problem,
                          const struct mt_placement_made *made, size_t device)
{
    uint64_t each = 0;
    for (size_t i = 0; i < problem->n_units; i++)
        if (home_of(problem, made, i) == (int)device)
            each += problem->units[i].token_bytes;
    uint64_t limit = problem->devices[device].limit_bytes;
    uint64_t used = made->devices[device].used_bytes;
    return !each ? UINT64_MAX : used >= limit ? 0 : (limit - used) / each;
}

void mt_placement_count(const struct mt_place_problem *problem, struct mt_placement_made *made)
{
    struct mt_placement *it = &made->it;
    for (size_t i = 0; i < problem->n_units; i++)
        add_unit(problem, made, &problem->units[i], i);
    add_room_for_copies(problem, made);
    it->further_tokens = UINT64_MAX;
    size_t in_use = 0;
    for (size_t d = 0; d < problem->n_devices; d++) {
        struct mt_placement_device *device = &made->devices[d];
        const struct mt_place_device *given = &problem->devices[d];
        int is_used = device->n_units || device->experts;
        in_use += (size_t)is_used;
        device->overhead_bytes += is_used ? given->overhead_bytes - problem->each_bytes : 0;
        device->dense_bytes += is_used ? problem->each_bytes : 0;
        device->used_bytes = device->dense_bytes + device->expert_bytes + device->cache_bytes +
                             device->overhead_bytes;
        device->expected_bytes = device->used_bytes;
        double share = (double)device->used_bytes / (double)given->capacity_bytes;
        it->highest_share = share > it->highest_share ? share : it->highest_share;
        uint64_t tokens = tokens_of(problem, made, d);
        it->further_tokens = tokens < it->further_tokens ? tokens : it->further_tokens;
    }
    it->crossings = count_crossings(problem, made);
    it->link_seconds = count_link_seconds(problem, made);
    for (size_t i = 0; i < problem->n_units; i++)
        if (made->unit_device[i] >= 0)
            it->read_seconds +=
                mt_place_read_seconds(problem, (size_t)made->unit_device[i], &problem->units[i]);
    uint64_t bytes = mt_place_bytes(problem) - it->host_bytes - it->disk_bytes;
    it->least_devices = mt_place_least_devices(problem, bytes);
    it->least_share = mt_place_least_share(problem, bytes, in_use);
    MT_HOLDS(mt_placement_is_valid(problem, it));
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
