/* SPDX-License-Identifier: MIT */
/* The best placement by an objective. Each step of the objective is a search for the tightest bound
 * that a split can keep to; the bounds of the steps before stay. */
#include "internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"

/* A cheapest split takes some nanoseconds for each of its steps. */
#define EVEN_STEPS_MAX  4e6
#define SPEED_STEPS_MAX 2e8
#define TOKENS_MAX      (UINT64_C(1) << 40)

__extension__ typedef unsigned __int128 wide;

static const char *const objective_names[] = {
#define OBJECTIVE_NAME(NAME, name) name,
    MT_OBJECTIVE_LIST(OBJECTIVE_NAME)
#undef OBJECTIVE_NAME
};

const char *mt_objective_name(enum mt_objective objective)
{
    return (unsigned)objective < MT_OBJECTIVE_COUNT ? objective_names[objective] : "?";
}

/* A search with what it needs. `bounds` are the tightest so far. */
struct search {
    const struct mt_place_problem *problem;
    const struct mt_place_unit *units; /* of the chain */
    struct mt_chain chain;
    struct mt_chain_bounds bounds;
    struct mt_chain_split split;
    const int *experts_left; /* of each unit of the chain; NULL: none */
    int is_best;
    double least_seconds; /* as of a placement */
};

static int fits(struct search *search, struct mt_chain_bounds bounds)
{
    return mt_chain_fill(&search->chain, &bounds, &search->split);
}

/* A bound that is tightened, and what is known of it between two looks. */
struct bound {
    uint64_t *value;
    /* what the split that was found keeps to, at or beyond the value on the side that is better */
    uint64_t (*attained)(const struct search *search);
    /* the nearest value, on the side that is worse, at which some device gets further */
    uint64_t (*next)(const struct search *search);
};

/* The tightest value of a bound between one that does not hold, and one that does. No split
 * changes between a value that fails and the next one at which a device gets further. */
static int tighten(struct search *search, const struct bound *bound, uint64_t fails, uint64_t holds)
{
    while (fails + 1 < holds || holds + 1 < fails) {
        *bound->value = fails < holds ? fails + (holds - fails) / 2 : holds + (fails - holds) / 2;
        int result = fits(search, search->bounds);
        if (result < 0)
            return result;
        if (result)
            holds = bound->attained(search);
        else
            fails = fails < holds ? bound->next(search) - 1 : bound->next(search) + 1;
    }
    *bound->value = holds;
    return 0;
}

static int fewest_devices(struct search *search)
{
    int result = fits(search, search->bounds);
    if (result == 1)
        search->bounds.devices = search->split.n;
    return result < 0 ? result : 0;
}

static uint64_t stretch_bytes(const struct mt_chain *chain, size_t from, size_t to)
{
    return chain->bytes[to] - chain->bytes[from];
}

/* The smallest share of a device that has room for a stretch. */
static uint64_t share_of(const struct mt_chain *chain, size_t device, size_t from, size_t to)
{
    const struct mt_place_device *d = &chain->devices[device];
    wide bytes = (wide)stretch_bytes(chain, from, to) + d->overhead_bytes;
    return (uint64_t)(((bytes << MT_SHARE_BITS) + d->capacity_bytes - 1) / d->capacity_bytes);
}

/* The most further tokens that a device has room for; TOKENS_MAX where they take nothing. */
static uint64_t tokens_of(const struct mt_chain *chain, size_t device, size_t from, size_t to)
{
    uint64_t room = (uint64_t)mt_chain_room(chain, device, MT_SHARE_ALL);
    uint64_t grown = chain->grown[to] - chain->grown[from];
    uint64_t tokens = grown ? (room - stretch_bytes(chain, from, to)) / grown : TOKENS_MAX;
    return tokens < TOKENS_MAX ? tokens : TOKENS_MAX;
}

static uint64_t attained_share(const struct search *search)
{
    uint64_t most = 0;
    for (size_t s = 0; s < search->split.n; s++) {
        uint64_t share = share_of(&search->chain, search->split.device[s],
                                  s ? search->split.end[s - 1] : 0, search->split.end[s]);
        most = share > most ? share : most;
    }
    return most;
}

static uint64_t attained_tokens(const struct search *search)
{
    uint64_t least = TOKENS_MAX;
    for (size_t s = 0; s < search->split.n; s++) {
        uint64_t tokens = tokens_of(&search->chain, search->split.device[s],
                                    s ? search->split.end[s - 1] : 0, search->split.end[s]);
        least = tokens < least ? tokens : least;
    }
    return least;
}

static uint64_t next_share(const struct search *search)
{
    const struct mt_chain *chain = &search->chain;
    uint64_t nearest = MT_SHARE_ALL;
    for (size_t k = 0; k < chain->n_kinds; k++)
        for (size_t from = 0; from < chain->n; from++) {
            size_t to = mt_chain_extend(chain, chain->example[k], from, &search->bounds);
            uint64_t share = to < chain->n ? share_of(chain, chain->example[k], from, to + 1) : 0;
            if (share > search->bounds.share && share < nearest)
                nearest = share;
        }
    return nearest;
}

static uint64_t next_tokens(const struct search *search)
{
    const struct mt_chain *chain = &search->chain;
    uint64_t nearest = 0;
    for (size_t k = 0; k < chain->n_kinds; k++)
        for (size_t from = 0; from < chain->n; from++) {
            size_t device = chain->example[k];
            size_t to = mt_chain_extend(chain, device, from, &search->bounds);
            int64_t room = mt_chain_room(chain, device, MT_SHARE_ALL);
            if (to == chain->n || room < 0 || stretch_bytes(chain, from, to + 1) > (uint64_t)room)
                continue;
            uint64_t tokens = tokens_of(chain, device, from, to + 1);
            if (tokens < search->bounds.tokens && tokens > nearest)
                nearest = tokens;
        }
    return nearest;
}

static int smallest_share(struct search *search)
{
    const struct bound bound = {&search->bounds.share, attained_share, next_share};
    return tighten(search, &bound, 0, search->bounds.share);
}

/* Tokens that take nothing anywhere are not looked for. */
static int most_tokens(struct search *search)
{
    const struct bound bound = {&search->bounds.tokens, attained_tokens, next_tokens};
    return search->chain.grown[search->chain.n]
               ? tighten(search, &bound, TOKENS_MAX, search->bounds.tokens)
               : 0;
}

static int keeps(const struct search *search, size_t device, size_t from, size_t to)
{
    const struct mt_chain *chain = &search->chain;
    int64_t room = mt_chain_room(chain, device, search->bounds.share);
    int64_t later = mt_chain_room(chain, device, MT_SHARE_ALL);
    double bytes = (double)stretch_bytes(chain, from, to);
    double grown = (double)(chain->grown[to] - chain->grown[from]) * (double)search->bounds.tokens;
    return room >= 0 && bytes <= (double)room && bytes + grown <= (double)later;
}

/* The sum of squared shares is smallest where devices are evenly filled. */
static double unevenness(const void *argument, size_t device, size_t from, size_t to)
{
    const struct search *search = argument;
    const struct mt_place_device *d = &search->chain.devices[device];
    double share = (double)(stretch_bytes(&search->chain, from, to) + d->overhead_bytes) /
                   (double)d->capacity_bytes;
    return keeps(search, device, from, to) ? share * share : -1;
}

/* The time in which a device reads what a token needs of the stretch, and hands on. */
static double seconds_of(const void *argument, size_t device, size_t from, size_t to)
{
    const struct search *search = argument;
    double seconds = mt_place_fastest_link(search->problem);
    if (!keeps(search, device, from, to))
        return -1;
    for (size_t i = from; i < to; i++)
        seconds += mt_place_read_seconds(search->problem, device, &search->units[i]);
    return seconds;
}

static int cheapest(struct search *search, mt_chain_cost *cost)
{
    return mt_chain_cheapest(&search->chain, search->bounds.devices, cost, search, &search->split);
}

/* Among splits that keep to all bounds the most even one is the easiest to read. */
static int most_even(struct search *search)
{
    int result = fits(search, search->bounds);
    if (result == 1 && mt_chain_steps(&search->chain) <= EVEN_STEPS_MAX)
        result = cheapest(search, unevenness);
    return result < 0 ? result : 0;
}

/* No split takes less than if each unit were on the fastest device, with one crossing less than
 * there are devices in the split with the fewest. */
static double least_seconds(const struct search *search)
{
    const struct mt_place_problem *problem = search->problem;
    size_t fastest = 0;
    size_t devices = mt_place_least_devices(problem, search->chain.bytes[search->chain.n]);
    double seconds = devices > 1 ? (double)(devices - 1) * mt_place_fastest_link(problem) : 0;
    for (size_t d = 1; d < problem->n_devices; d++)
        if (problem->devices[d].bytes_per_second > problem->devices[fastest].bytes_per_second)
            fastest = d;
    for (size_t i = 0; i < search->chain.n; i++)
        seconds += mt_place_read_seconds(problem, fastest, &search->units[i]);
    return seconds;
}

static double split_seconds(const struct search *search)
{
    const struct mt_chain_split *split = &search->split;
    double seconds = (double)(split->n - 1) * mt_place_fastest_link(search->problem);
    for (size_t s = 0; s < split->n; s++)
        for (size_t i = s ? split->end[s - 1] : 0; i < split->end[s]; i++)
            seconds += mt_place_read_seconds(search->problem, split->device[s], &search->units[i]);
    return seconds;
}

static int fastest(struct search *search)
{
    search->least_seconds = least_seconds(search);
    if (mt_chain_steps(&search->chain) > SPEED_STEPS_MAX) {
        search->is_best = 0;
        return most_even(search);
    }
    int result = cheapest(search, seconds_of);
    if (result == 1)
        search->least_seconds = split_seconds(search);
    return result < 0 ? result : 0;
}

typedef int step_fn(struct search *search);

static int take_steps(struct search *search)
{
    static step_fn *const steps[MT_OBJECTIVE_COUNT][4] = {
        [MT_OBJECTIVE_CROSSINGS] = {fewest_devices, smallest_share, most_tokens, most_even},
        [MT_OBJECTIVE_BALANCE] = {smallest_share, fewest_devices, most_tokens, most_even},
        [MT_OBJECTIVE_ROOM] = {most_tokens, fewest_devices, smallest_share, most_even},
        [MT_OBJECTIVE_SPEED] = {fastest},
    };
    int result = 0;
    for (size_t i = 0; i < 4 && !result && steps[search->problem->objective][i]; i++)
        result = steps[search->problem->objective][i](search);
    return result;
}

/* ---- the answer ---- */

/* What the host has no room for, from the last that left on. */
static void leave_for_disk(const struct mt_place_problem *problem, struct mt_placement_made *made)
{
    uint64_t room = problem->host_limit_bytes ? problem->host_limit_bytes : UINT64_MAX;
    for (size_t i = 0; i < problem->n_units; i++) {
        const struct mt_place_unit *unit = &problem->units[i];
        uint64_t bytes = made->unit_device[i] == MT_PLACE_HOST ? unit->dense_bytes : 0;
        bytes += made->expert_device[i] == MT_PLACE_HOST ? unit->expert_bytes : 0;
        if (bytes <= room) {
            room -= bytes;
            continue;
        }
        room = 0;
        if (made->unit_device[i] == MT_PLACE_HOST)
            made->unit_device[i] = MT_PLACE_DISK;
        if (made->expert_device[i] == MT_PLACE_HOST)
            made->expert_device[i] = MT_PLACE_DISK;
    }
}

static struct mt_placement_made *placed(const struct search *search, size_t left)
{
    struct mt_placement_made *made = mt_placement_new(search->problem, 0);
    if (!made)
        return NULL;
    int stays = search->problem->host_keeps_only;
    for (size_t i = 0; i < left; i++)
        made->unit_device[i] = made->expert_device[i] =
            i || !stays ? MT_PLACE_HOST : (int)search->split.device[0];
    for (size_t s = 0; s < search->split.n; s++)
        for (size_t i = s ? search->split.end[s - 1] : 0; i < search->split.end[s]; i++) {
            int device = (int)search->split.device[s];
            int is_left = search->experts_left && search->experts_left[left + i];
            made->unit_device[left + i] = device;
            made->expert_device[left + i] = is_left ? MT_PLACE_HOST : device;
        }
    leave_for_disk(search->problem, made);
    mt_placement_count(search->problem, made);
    made->it.is_best = search->is_best;
    made->it.least_seconds = search->least_seconds;
    /* Splits were compared as if all links were as fast as the fastest. */
    if (search->problem->objective == MT_OBJECTIVE_SPEED && search->problem->link_seconds &&
        made->it.read_seconds + made->it.link_seconds > search->least_seconds * (1 + 1e-12))
        made->it.is_best = 0;
    return made;
}

int mt_place_check(const struct mt_place_problem *problem, struct mt_error *error)
{
    if (!problem->n_devices)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "there is no device to place anything on");
    if (!problem->n_units)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "there is nothing to place");
    if (problem->n_devices > MT_PLACE_DEVICES_MAX)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "there are %zu devices; the most are %d",
                       problem->n_devices, MT_PLACE_DEVICES_MAX);
    for (size_t d = 0; d < problem->n_devices; d++)
        if (!problem->devices[d].capacity_bytes)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET, "device %zu has no memory", d);
    for (size_t i = 0; i < problem->n_units; i++) {
        int pinned = problem->units[i].pinned;
        if (pinned != MT_PLACE_ANY && (pinned < 0 || pinned >= (int)problem->n_devices))
            return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                           "%s is pinned to device %d, and the last one is %zu",
                           problem->units[i].name, pinned, problem->n_devices - 1);
    }
    return 0;
}

/* A stretch for each device: a unit pinned to one it has left cannot be reached again. */
static int check_pins(const struct mt_place_problem *problem, struct mt_error *error)
{
    for (size_t i = 0; i < problem->n_units; i++) {
        int pinned = problem->units[i].pinned;
        size_t last = i;
        for (size_t j = i + 1; pinned != MT_PLACE_ANY && j < problem->n_units; j++)
            last = problem->units[j].pinned == pinned ? j : last;
        for (size_t j = i + 1; j < last; j++)
            if (problem->units[j].pinned != MT_PLACE_ANY && problem->units[j].pinned != pinned)
                return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                               "%s and %s are pinned to device %d, and %s between them to device "
                               "%d; pin them so that each device has one stretch of layers",
                               problem->units[i].name, problem->units[last].name, pinned,
                               problem->units[j].name, problem->units[j].pinned);
    }
    return 0;
}

/* Solves for the units that stay. */
static int solve(const struct mt_place_problem *problem, const struct mt_place_unit *units,
                 const struct mt_place_leaving *leaving, struct mt_placement_made **made,
                 struct mt_error *error)
{
    size_t left = leaving ? leaving->units : 0;
    struct search search = {.problem = problem,
                            .units = units,
                            .bounds = {MT_SHARE_ALL, 0, problem->n_devices},
                            .experts_left = leaving ? leaving->experts : NULL,
                            .is_best = !leaving || leaving->is_best};
    int result = mt_chain_init(&search.chain, problem, units, problem->n_units - left, error);
    if (result)
        return result;
    result = mt_chain_split_init(&search.split, &search.chain, error);
    int found = result ? result : fits(&search, search.bounds);
    if (found == 1)
        found = take_steps(&search) < 0 ? MT_ENOMEM : 1;
    if (found == 1 && mt_place_follow_links(problem, &search.chain, &search.split))
        found = MT_ENOMEM;
    if (found == 1 && !(*made = placed(&search, left)))
        found = MT_ENOMEM;
    mt_chain_split_finish(&search.split);
    mt_chain_finish(&search.chain);
    return found < 0 && !result ? mt_fail(error, found, MT_NO_OFFSET, "out of memory") : found;
}

/* Solves again with what had to leave taken out. */
static int solve_the_rest(const struct mt_place_problem *problem,
                          const struct mt_place_leaving *leaving, struct mt_placement_made **made,
                          struct mt_error *error)
{
    struct mt_place_unit *units =
        mt_place_units_that_stay(problem, leaving->units, leaving->experts);
    if (!units)
        return mt_out_of_memory(error);
    int result = solve(problem, units, leaving, made, error);
    free(units);
    return result;
}

int mt_place_units(const struct mt_place_problem *problem, struct mt_placement **placement,
                   struct mt_error *error)
{
    struct mt_placement_made *made = NULL;
    int result = mt_place_check(problem, error);
    if (!result && !problem->stretches_may_break)
        result = check_pins(problem, error);
    if (result)
        return result;
    result = solve(problem, problem->units, NULL, &made, error);
    if (!result && problem->stretches_may_break)
        result = mt_place_pack(problem, &made, error);
    if (!result && (problem->experts_may_leave || problem->layers_may_leave)) {
        struct mt_place_leaving leaving = {0};
        result = mt_place_leave(problem, &leaving, error);
        if (result == 1)
            result = solve_the_rest(problem, &leaving, &made, error);
        free(leaving.experts);
    }
    if (!result)
        return mt_place_refuse(problem, error);
    if (result < 0)
        return result;
    *placement = &made->it;
    return 0;
}
