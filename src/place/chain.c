/* SPDX-License-Identifier: MIT */
/* Splits of a chain by dynamic programming over the devices in use.
 *
 * For fixed bounds a state's farthest reach is all that matters, because a stretch that begins
 * later ends no earlier. Sums of costs need the best sum for each state and unit instead. */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"

__extension__ typedef unsigned __int128 wide;

static int is_pinned_anywhere(const struct mt_place_unit *units, size_t n, size_t device)
{
    for (size_t i = 0; i < n; i++)
        if (units[i].pinned == (int)device)
            return 1;
    return 0;
}

static int are_alike(const struct mt_place_device *a, const struct mt_place_device *b)
{
    return a->capacity_bytes == b->capacity_bytes && a->limit_bytes == b->limit_bytes &&
           a->overhead_bytes == b->overhead_bytes && !(a->bytes_per_second < b->bytes_per_second) &&
           !(a->bytes_per_second > b->bytes_per_second);
}

static void sort_into_kinds(struct mt_chain *chain, const struct mt_place_unit *units)
{
    for (size_t d = 0; d < chain->n_devices; d++) {
        size_t kind = is_pinned_anywhere(units, chain->n, d) ? chain->n_kinds : 0;
        while (kind < chain->n_kinds &&
               (is_pinned_anywhere(units, chain->n, chain->example[kind]) ||
                !are_alike(&chain->devices[d], &chain->devices[chain->example[kind]])))
            kind++;
        if (kind == chain->n_kinds) {
            chain->example[kind] = d;
            chain->n_kinds++;
        }
        chain->kind_of[d] = kind;
        chain->count[kind]++;
    }
}

static int number_states(struct mt_chain *chain, struct mt_error *error)
{
    chain->n_states = 1;
    for (size_t k = 0; k < chain->n_kinds; k++) {
        chain->stride[k] = chain->n_states;
        chain->n_states *= chain->count[k] + 1;
        if (chain->n_states > MT_CHAIN_STATES_MAX)
            return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                           "more than %d ways to choose among devices that all differ; leave some "
                           "of them out",
                           MT_CHAIN_STATES_MAX);
    }
    chain->used = calloc(chain->n_states, sizeof *chain->used);
    if (!chain->used)
        return mt_out_of_memory(error);
    for (size_t s = 1; s < chain->n_states; s++)
        for (size_t k = 0; k < chain->n_kinds; k++)
            chain->used[s] =
                (uint16_t)(chain->used[s] + s / chain->stride[k] % (chain->count[k] + 1));
    return 0;
}

static void add_up(struct mt_chain *chain, const struct mt_place_unit *units)
{
    for (size_t i = 0; i < chain->n; i++) {
        const struct mt_place_unit *unit = &units[i];
        chain->bytes[i + 1] = chain->bytes[i] + mt_place_unit_bytes(unit);
        chain->grown[i + 1] = chain->grown[i] + unit->token_bytes;
    }
}

int mt_chain_init(struct mt_chain *chain, const struct mt_place_problem *problem,
                  const struct mt_place_unit *units, size_t n_units, struct mt_error *error)
{
    size_t n = problem->n_devices;
    *chain = (struct mt_chain){.n = n_units, .n_devices = n, .devices = problem->devices};
    int *pinned = calloc(n_units, sizeof *pinned);
    chain->bytes = calloc(n_units + 1, sizeof *chain->bytes);
    chain->grown = calloc(n_units + 1, sizeof *chain->grown);
    chain->kind_of = calloc(4 * n, sizeof *chain->kind_of);
    chain->pinned = pinned;
    if (!pinned || !chain->bytes || !chain->grown || !chain->kind_of) {
        mt_chain_finish(chain);
        return mt_out_of_memory(error);
    }
    chain->count = chain->kind_of + n;
    chain->stride = chain->count + n;
    chain->example = chain->stride + n;
    for (size_t i = 0; i < n_units; i++)
        pinned[i] = units[i].pinned;
    add_up(chain, units);
    sort_into_kinds(chain, units);
    int result = number_states(chain, error);
    if (result)
        mt_chain_finish(chain);
    return result;
}

void mt_chain_finish(struct mt_chain *chain)
{
    free(chain->bytes);
    free(chain->grown);
    free(chain->kind_of);
    free(chain->used);
    free((void *)(uintptr_t)chain->pinned);
    *chain = (struct mt_chain){0};
}

int mt_chain_split_init(struct mt_chain_split *split, const struct mt_chain *chain,
                        struct mt_error *error)
{
    *split = (struct mt_chain_split){.device = calloc(chain->n_devices, sizeof *split->device),
                                     .end = calloc(chain->n_devices, sizeof *split->end)};
    if (split->device && split->end)
        return 0;
    mt_chain_split_finish(split);
    return mt_out_of_memory(error);
}

void mt_chain_split_finish(struct mt_chain_split *split)
{
    free(split->device);
    free(split->end);
    *split = (struct mt_chain_split){0};
}

int64_t mt_chain_room(const struct mt_chain *chain, size_t device, uint64_t share)
{
    const struct mt_place_device *d = &chain->devices[device];
    uint64_t most = (uint64_t)((wide)d->capacity_bytes * share >> MT_SHARE_BITS);
    if (most > d->limit_bytes)
        most = d->limit_bytes;
    return most < d->overhead_bytes ? -1 : (int64_t)(most - d->overhead_bytes);
}

static uint64_t bytes_of(const struct mt_chain *chain, size_t from, size_t to, uint64_t tokens)
{
    wide more = (wide)(chain->grown[to] - chain->grown[from]) * tokens;
    more += chain->bytes[to] - chain->bytes[from];
    return more > INT64_MAX ? INT64_MAX : (uint64_t)more;
}

int mt_chain_may_lie(const struct mt_chain *chain, size_t device, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (chain->pinned[i] != MT_PLACE_ANY && chain->pinned[i] != (int)device)
            return 0;
    return 1;
}

/* What a device may have: as asked for, and with the further tokens. */
struct room {
    int64_t now;
    int64_t later;
};

/* How far a device gets that begins at `from`. */
static size_t extend(const struct mt_chain *chain, size_t device, size_t from,
                     const struct room *room, uint64_t tokens)
{
    size_t low = from;
    size_t high = chain->n;
    if (room->now < 0)
        return from;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (bytes_of(chain, from, middle, 0) <= (uint64_t)room->now &&
            bytes_of(chain, from, middle, tokens) <= (uint64_t)room->later)
            low = middle;
        else
            high = middle - 1;
    }
    size_t to = from;
    while (to < low && (chain->pinned[to] == MT_PLACE_ANY || chain->pinned[to] == (int)device))
        to++;
    return to;
}

/* The device of a kind that is the `nth` in use. */
static size_t device_of_kind(const struct mt_chain *chain, size_t kind, size_t nth)
{
    size_t d = 0;
    for (;; d++)
        if (chain->kind_of[d] == kind && nth-- == 0)
            return d;
}

static size_t in_use(const struct mt_chain *chain, size_t state, size_t kind)
{
    return state / chain->stride[kind] % (chain->count[kind] + 1);
}

size_t mt_chain_extend(const struct mt_chain *chain, size_t device, size_t from,
                       const struct mt_chain_bounds *bounds)
{
    const struct room room = {mt_chain_room(chain, device, bounds->share),
                              mt_chain_room(chain, device, MT_SHARE_ALL)};
    return extend(chain, device, from, &room, bounds->tokens);
}

struct filling {
    uint32_t *reach; /* of each state */
    uint32_t *to;    /* rows of n + 1, by kind: where a device ends that begins at a unit */
    size_t *digits;  /* how many of each kind the state has in use */
    uint64_t kinds;  /* those of which it has some, a bit each */
};

static int filling_init(struct filling *filling, const struct mt_chain *chain)
{
    filling->reach = calloc(chain->n_states, sizeof *filling->reach);
    filling->to = calloc(chain->n_kinds * (chain->n + 1), sizeof *filling->to);
    filling->digits = calloc(chain->n_kinds, sizeof *filling->digits);
    return filling->reach && filling->to && filling->digits;
}

static void filling_finish(struct filling *filling)
{
    free(filling->reach);
    free(filling->to);
    free(filling->digits);
}

static void find_ends(const struct mt_chain *chain, const struct mt_chain_bounds *bounds,
                      struct filling *filling)
{
    for (size_t k = 0; k < chain->n_kinds; k++)
        for (size_t from = 0; from <= chain->n; from++)
            filling->to[k * (chain->n + 1) + from] =
                (uint32_t)mt_chain_extend(chain, chain->example[k], from, bounds);
}

static void count_up(const struct mt_chain *chain, struct filling *filling)
{
    size_t k = 0;
    while (filling->digits[k] == chain->count[k]) {
        filling->kinds &= ~(UINT64_C(1) << k);
        filling->digits[k++] = 0;
    }
    filling->kinds |= UINT64_C(1) << k;
    filling->digits[k]++;
}

static uint32_t reach_from_predecessors(const struct mt_chain *chain, size_t state,
                                        const struct filling *filling)
{
    uint32_t farthest = 0;
    for (uint64_t kinds = filling->kinds; kinds; kinds &= kinds - 1) {
        size_t k = (size_t)__builtin_ctzll(kinds);
        uint32_t from = filling->reach[state - chain->stride[k]];
        uint32_t to = filling->to[k * (chain->n + 1) + from];
        farthest = to > farthest ? to : farthest;
    }
    return farthest;
}

/* Follows a state that gets to the end of the chain back to the start. */
static void trace(const struct mt_chain *chain, const struct filling *filling, size_t state,
                  struct mt_chain_split *split)
{
    split->n = chain->used[state];
    for (size_t i = split->n; i-- > 0;) {
        size_t k = 0;
        while (!in_use(chain, state, k) ||
               filling->to[k * (chain->n + 1) + filling->reach[state - chain->stride[k]]] !=
                   filling->reach[state])
            k++;
        split->device[i] = device_of_kind(chain, k, in_use(chain, state, k) - 1);
        split->end[i] = filling->reach[state];
        state -= chain->stride[k];
    }
}

int mt_chain_fill(const struct mt_chain *chain, const struct mt_chain_bounds *bounds,
                  struct mt_chain_split *split)
{
    struct filling filling = {0};
    size_t best = 0;
    int result = filling_init(&filling, chain) ? 0 : MT_ENOMEM;
    if (!result)
        find_ends(chain, bounds, &filling);
    for (size_t s = 1; !result && s < chain->n_states; s++) {
        count_up(chain, &filling);
        if (chain->used[s] > bounds->devices)
            continue;
        filling.reach[s] = reach_from_predecessors(chain, s, &filling);
        if (filling.reach[s] == chain->n && (!best || chain->used[s] < chain->used[best]))
            best = s;
    }
    if (!result && best) {
        trace(chain, &filling, best, split);
        result = 1;
    }
    filling_finish(&filling);
    return result;
}

double mt_chain_steps(const struct mt_chain *chain)
{
    return (double)chain->n_states * (double)chain->n_kinds * (double)chain->n *
           (double)(chain->n + 1) / 2;
}

/* Best sums by state and unit, each with the step that led there. */
struct sums {
    size_t width; /* units + 1 */
    double *best;
    uint32_t *start;
    uint8_t *last;
};

static int sums_init(struct sums *sums, const struct mt_chain *chain)
{
    sums->width = chain->n + 1;
    size_t cells = chain->n_states * sums->width;
    sums->best = malloc(cells * sizeof *sums->best);
    sums->start = malloc(cells * sizeof *sums->start);
    sums->last = malloc(cells * sizeof *sums->last);
    if (!sums->best || !sums->start || !sums->last)
        return 0;
    for (size_t i = 0; i < cells; i++)
        sums->best[i] = INFINITY;
    sums->best[0] = 0;
    return 1;
}

static void sums_finish(struct sums *sums)
{
    free(sums->best);
    free(sums->start);
    free(sums->last);
}

static void add_stretches(const struct mt_chain *chain, size_t state, size_t kind,
                          mt_chain_cost *cost, const void *argument, struct sums *sums)
{
    const double *before = sums->best + (state - chain->stride[kind]) * sums->width;
    size_t device = chain->example[kind];
    size_t row = state * sums->width;
    for (size_t from = 0; from < chain->n; from++) {
        if (before[from] == INFINITY)
            continue;
        for (size_t to = from + 1; to <= chain->n; to++) {
            if (!mt_chain_may_lie(chain, device, to - 1, to))
                break;
            double more = cost(argument, device, from, to);
            if (more < 0)
                break;
            if (before[from] + more >= sums->best[row + to])
                continue;
            sums->best[row + to] = before[from] + more;
            sums->start[row + to] = (uint32_t)from;
            sums->last[row + to] = (uint8_t)kind;
        }
    }
}

static void trace_sums(const struct mt_chain *chain, const struct sums *sums, size_t state,
                       struct mt_chain_split *split)
{
    size_t end = chain->n;
    split->n = chain->used[state];
    for (size_t i = split->n; i-- > 0;) {
        size_t cell = state * sums->width + end;
        size_t kind = sums->last[cell];
        split->device[i] = device_of_kind(chain, kind, in_use(chain, state, kind) - 1);
        split->end[i] = end;
        end = sums->start[cell];
        state -= chain->stride[kind];
    }
}

int mt_chain_cheapest(const struct mt_chain *chain, size_t devices, mt_chain_cost *cost,
                      const void *argument, struct mt_chain_split *split)
{
    struct sums sums = {0};
    size_t best = 0;
    int result = sums_init(&sums, chain) ? 0 : MT_ENOMEM;
    for (size_t s = 1; !result && s < chain->n_states; s++) {
        if (chain->used[s] > devices)
            continue;
        for (size_t k = 0; k < chain->n_kinds; k++)
            if (in_use(chain, s, k))
                add_stretches(chain, s, k, cost, argument, &sums);
        const double *end = sums.best + chain->n;
        if (end[s * sums.width] < (best ? end[best * sums.width] : INFINITY))
            best = s;
    }
    if (!result && best) {
        trace_sums(chain, &sums, best, split);
        result = 1;
    }
    sums_finish(&sums);
    return result;
}
