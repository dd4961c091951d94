/* SPDX-License-Identifier: MIT */
/* Ways that others place a mixture of experts. */
#include "internal.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/out_of_memory.h"

static const char *const policy_names[] = {
#define POLICY_NAME(NAME, name) name,
    MT_PLACE_POLICY_LIST(POLICY_NAME)
#undef POLICY_NAME
};

const char *mt_place_policy_name(enum mt_place_policy policy)
{
    return (unsigned)policy < MT_PLACE_POLICY_COUNT ? policy_names[policy] : "?";
}

static uint64_t layers_of(const struct mt_place_problem *problem)
{
    uint64_t layers = 0;
    for (size_t i = 0; i < problem->n_units; i++)
        layers += problem->units[i].layer != UINT32_MAX;
    return layers;
}

/* The first of n devices gets an eighth fewer layers than its even part, since it has the embedding
 * and one layer's experts more: 14 of 32 on the first of two. */
static uint64_t layers_before(uint64_t layers, size_t device, size_t n_devices)
{
    uint64_t first = layers * 7 / (8 * n_devices);
    if (!device)
        return 0;
    return n_devices == 1 ? layers : first + (layers - first) * (device - 1) / (n_devices - 1);
}

static int device_of_layer(const struct mt_place_problem *problem, uint64_t nth, uint64_t layers)
{
    size_t d = 0;
    while (d + 1 < problem->n_devices && nth >= layers_before(layers, d + 1, problem->n_devices))
        d++;
    return (int)d;
}

/* The first layer is whole; from the second on experts take turns. */
static int alternate(const struct mt_place_problem *problem, struct mt_placement_made *made)
{
    uint64_t layers = layers_of(problem);
    uint64_t nth = 0;
    int last = (int)problem->n_devices - 1;
    for (size_t i = 0; i < problem->n_units; i++) {
        const struct mt_place_unit *unit = &problem->units[i];
        int is_layer = unit->layer != UINT32_MAX;
        /* What follows the layers lies on the first device, but for the very last. */
        made->unit_device[i] = is_layer ? device_of_layer(problem, nth, layers)
                               : nth && i + 1 == problem->n_units ? last
                                                                  : 0;
        if (is_layer && !nth)
            made->expert_device[i] = 0;
        for (uint32_t e = 0; e < unit->experts; e++)
            made->expert_at[i * made->it.experts_most + e] = e % 2 ? last : 0;
        nth += (uint64_t)is_layer;
    }
    return 0;
}

/* Stretches of as many layers, and expert i of each layer on device i modulo devices. */
static int take_turns(const struct mt_place_problem *problem, struct mt_placement_made *made)
{
    uint64_t layers = layers_of(problem);
    uint64_t nth = 0;
    for (size_t i = 0; i < problem->n_units; i++) {
        const struct mt_place_unit *unit = &problem->units[i];
        int is_layer = unit->layer != UINT32_MAX;
        uint64_t at = nth < layers ? nth : layers ? layers - 1 : 0;
        made->unit_device[i] = (int)(layers ? at * problem->n_devices / layers : 0);
        for (uint32_t e = 0; e < unit->experts; e++)
            made->expert_at[i * made->it.experts_most + e] = (int)(e % problem->n_devices);
        nth += (uint64_t)is_layer;
    }
    return 0;
}

/* Each device is filled before the next is begun; what fits nowhere goes to the last. */
static int fill_in_order(const struct mt_place_problem *problem, struct mt_placement_made *made)
{
    size_t d = 0;
    uint64_t used = problem->devices[0].overhead_bytes;
    for (size_t i = 0; i < problem->n_units; i++) {
        const struct mt_place_unit *unit = &problem->units[i];
        uint64_t bytes = mt_place_unit_bytes(unit);
        while (d + 1 < problem->n_devices && used + bytes > problem->devices[d].limit_bytes)
            used = problem->devices[++d].overhead_bytes;
        made->unit_device[i] = made->expert_device[i] = (int)d;
        used += bytes;
    }
    return 0;
}

/* An expert with the part of its layer's use that is its own. */
struct used_expert {
    size_t unit;
    uint32_t expert;
    double use;
};

static int more_used_first(const void *a, const void *b)
{
    const struct used_expert *x = a;
    const struct used_expert *y = b;
    if (x->use < y->use || x->use > y->use)
        return x->use < y->use ? 1 : -1;
    if (x->unit != y->unit)
        return x->unit < y->unit ? -1 : 1;
    return x->expert < y->expert ? -1 : 1;
}

static struct used_expert *list_experts(const struct mt_place_problem *problem,
                                        const struct mt_placement *it, size_t *n)
{
    struct used_expert *all = calloc(problem->n_units * it->experts_most + 1, sizeof *all);
    *n = 0;
    for (size_t i = 0; all && i < problem->n_units; i++) {
        const double *use = mt_place_use_of(problem, it, i);
        double sum = 0;
        for (uint32_t e = 0; e < problem->units[i].experts; e++)
            sum += use ? use[e] : 1;
        for (uint32_t e = 0; e < problem->units[i].experts; e++)
            all[(*n)++] = (struct used_expert){i, e, (use ? use[e] : 1) / sum};
    }
    if (all)
        qsort(all, *n, sizeof *all, more_used_first);
    return all;
}

/* What is left of each device beside units without their experts; negative: nothing. */
static void count_rooms(const struct mt_place_problem *problem,
                        const struct mt_placement_made *made, double *rooms)
{
    for (size_t d = 0; d < problem->n_devices; d++)
        rooms[d] =
            (double)problem->devices[d].limit_bytes - (double)problem->devices[d].overhead_bytes;
    for (size_t i = 0; i < problem->n_units; i++)
        rooms[made->unit_device[i]] -=
            (double)(mt_place_unit_bytes(&problem->units[i]) - problem->units[i].expert_bytes);
}

static size_t roomiest(const double *rooms, size_t n)
{
    size_t best = 0;
    for (size_t d = 1; d < n; d++)
        best = rooms[d] > rooms[best] ? d : best;
    return best;
}

/* As take_turns(), but an expert lies with its layer while that device has room. */
static int follow_traffic(const struct mt_place_problem *problem, struct mt_placement_made *made)
{
    double rooms[MT_PLACE_DEVICES_MAX];
    size_t n;
    struct used_expert *experts = list_experts(problem, &made->it, &n);
    if (!experts)
        return MT_ENOMEM;
    take_turns(problem, made);
    count_rooms(problem, made, rooms);
    for (size_t i = 0; i < n; i++) {
        const struct mt_place_unit *unit = &problem->units[experts[i].unit];
        double bytes = (double)unit->expert_bytes / unit->experts;
        size_t home = (size_t)made->unit_device[experts[i].unit];
        size_t device = rooms[home] >= bytes ? home : roomiest(rooms, problem->n_devices);
        rooms[device] -= bytes;
        made->expert_at[experts[i].unit * made->it.experts_most + experts[i].expert] = (int)device;
    }
    free(experts);
    return 0;
}

int mt_place_by_policy(const struct mt_place_problem *problem, enum mt_place_policy policy,
                       struct mt_placement **placement, struct mt_error *error)
{
    typedef int place_fn(const struct mt_place_problem *, struct mt_placement_made *);
    static place_fn *const ways[MT_PLACE_POLICY_COUNT] = {
        [MT_PLACE_POLICY_BALANCED_EXPERTS] = alternate,
        [MT_PLACE_POLICY_ROUND_ROBIN] = take_turns,
        [MT_PLACE_POLICY_IN_ORDER] = fill_in_order,
        [MT_PLACE_POLICY_TRAFFIC] = follow_traffic,
    };
    if (policy == MT_PLACE_POLICY_BEST)
        return mt_place_units(problem, placement, error);
    if ((unsigned)policy >= MT_PLACE_POLICY_COUNT)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "there is no policy of number %d", policy);
    int result = mt_place_check(problem, error);
    if (result)
        return result;
    struct mt_placement_made *made = mt_placement_new(problem, policy != MT_PLACE_POLICY_IN_ORDER);
    if (!made)
        return mt_out_of_memory(error);
    if (ways[policy](problem, made)) {
        mt_placement_destroy(&made->it);
        return mt_out_of_memory(error);
    }
    mt_placement_count(problem, made);
    *placement = &made->it;
    return 0;
}
