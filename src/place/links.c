/* SPDX-License-Identifier: MIT */
/* Which of several devices that are alike gets which stretch, where their links differ: the path of
 * a token over the fastest ones. */
#include "internal.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>

/* A path is sought among all sets of so many devices; with more it goes on to the nearest, and then
 * two change places while it helps. */
#define SETS_OF_MOST 16

double mt_place_link_seconds(const struct mt_place_problem *problem, size_t a, size_t b)
{
    return problem->link_seconds ? problem->link_seconds[a * problem->n_devices + b]
                                 : problem->crossing_seconds;
}

double mt_place_fastest_link(const struct mt_place_problem *problem)
{
    double least = problem->n_devices > 1 ? INFINITY : problem->crossing_seconds;
    for (size_t a = 0; a < problem->n_devices; a++)
        for (size_t b = 0; b < problem->n_devices; b++)
            if (a != b && mt_place_link_seconds(problem, a, b) < least)
                least = mt_place_link_seconds(problem, a, b);
    return least;
}

static double path_seconds(const struct mt_place_problem *problem,
                           const struct mt_chain_split *split)
{
    double seconds = 0;
    for (size_t i = 1; i < split->n; i++)
        seconds += mt_place_link_seconds(problem, split->device[i - 1], split->device[i]);
    if (problem->output_is_input && split->n > 1)
        seconds += mt_place_link_seconds(problem, split->device[split->n - 1], split->device[0]);
    return seconds;
}

/* The least seconds to each set of devices, by the device that is last. */
struct paths {
    size_t n;
    double *seconds; /* 2^n rows of n */
    uint8_t *before;
};

static void extend_paths(const struct mt_place_problem *problem, const struct mt_chain *chain,
                         const size_t *kinds, size_t wanted, size_t set, struct paths *paths)
{
    size_t place = (size_t)__builtin_popcountll(set);
    for (size_t last = 0; place < wanted && last < paths->n; last++) {
        double so_far = paths->seconds[set * paths->n + last];
        if (so_far == INFINITY)
            continue;
        for (size_t d = 0; d < paths->n; d++) {
            if (set >> d & 1 || chain->kind_of[d] != kinds[place])
                continue;
            size_t cell = (set | (size_t)1 << d) * paths->n + d;
            double seconds = so_far + mt_place_link_seconds(problem, last, d);
            if (seconds < paths->seconds[cell]) {
                paths->seconds[cell] = seconds;
                paths->before[cell] = (uint8_t)last;
            }
        }
    }
}

/* The end of the fastest path over so many devices. SIZE_MAX: there is none. */
static size_t fastest_end(const struct paths *paths, size_t wanted)
{
    size_t best = SIZE_MAX;
    for (size_t cell = 0; cell < (paths->n << paths->n); cell++)
        if ((size_t)__builtin_popcountll(cell / paths->n) == wanted &&
            paths->seconds[cell] < (best == SIZE_MAX ? INFINITY : paths->seconds[best]))
            best = cell;
    return best;
}

static int follow_sets(const struct mt_place_problem *problem, const struct mt_chain *chain,
                       const size_t *kinds, struct mt_chain_split *split)
{
    struct paths paths = {.n = problem->n_devices};
    size_t cells = paths.n << paths.n;
    paths.seconds = malloc(cells * sizeof *paths.seconds);
    paths.before = malloc(cells * sizeof *paths.before);
    int result = paths.seconds && paths.before ? 0 : MT_ENOMEM;
    for (size_t i = 0; !result && i < cells; i++)
        paths.seconds[i] = INFINITY;
    for (size_t d = 0; !result && d < paths.n; d++)
        if (chain->kind_of[d] == kinds[0])
            paths.seconds[((size_t)1 << d) * paths.n + d] = 0;
    for (size_t set = 1; !result && set < (size_t)1 << paths.n; set++)
        extend_paths(problem, chain, kinds, split->n, set, &paths);
    size_t cell = result ? SIZE_MAX : fastest_end(&paths, split->n);
    for (size_t i = split->n; cell != SIZE_MAX && i-- > 0;) {
        size_t d = cell % paths.n;
        split->device[i] = d;
        cell = (cell / paths.n & ~((size_t)1 << d)) * paths.n + paths.before[cell];
    }
    free(paths.seconds);
    free(paths.before);
    return result;
}

static void change(struct mt_chain_split *split, size_t i, size_t to)
{
    for (size_t j = 0; j < split->n; j++)
        if (split->device[j] == to)
            split->device[j] = split->device[i];
    split->device[i] = to;
}

/* Gives a stretch another device of the same kind, which gets this one's in return. */
static void change_places(const struct mt_place_problem *problem, const struct mt_chain *chain,
                          struct mt_chain_split *split)
{
    double seconds = path_seconds(problem, split);
    for (int changed = 1; changed;) {
        changed = 0;
        for (size_t i = 0; i < split->n; i++)
            for (size_t d = 0; d < problem->n_devices; d++) {
                size_t from = split->device[i];
                if (d == from || chain->kind_of[d] != chain->kind_of[from])
                    continue;
                change(split, i, d);
                double now = path_seconds(problem, split);
                if (now < seconds * (1 - 1e-12)) {
                    seconds = now;
                    changed = 1;
                } else {
                    change(split, i, from);
                }
            }
    }
}

/* From a device always on over the fastest link to one of the kind that is wanted next. Returns 0
 * where the first one is of another kind. */
static int follow_nearest(const struct mt_place_problem *problem, const struct mt_chain *chain,
                          const size_t *kinds, size_t first, struct mt_chain_split *split)
{
    uint64_t taken = UINT64_C(1) << first;
    if (chain->kind_of[first] != kinds[0])
        return 0;
    split->device[0] = first;
    for (size_t i = 1; i < split->n; i++) {
        size_t best = SIZE_MAX;
        size_t from = split->device[i - 1];
        for (size_t d = 0; d < problem->n_devices; d++)
            if (!(taken >> d & 1) && chain->kind_of[d] == kinds[i] &&
                (best == SIZE_MAX || mt_place_link_seconds(problem, from, d) <
                                         mt_place_link_seconds(problem, from, best)))
                best = d;
        taken |= UINT64_C(1) << best;
        split->device[i] = best;
    }
    return 1;
}

/* The best of the paths to the nearest from each device. */
static void follow_all_nearest(const struct mt_place_problem *problem, const struct mt_chain *chain,
                               const size_t *kinds, struct mt_chain_split *split)
{
    double seconds = path_seconds(problem, split);
    size_t given[MT_PLACE_DEVICES_MAX];
    memcpy(given, split->device, split->n * sizeof *given);
    for (size_t d = 0; d < problem->n_devices; d++) {
        if (!follow_nearest(problem, chain, kinds, d, split) ||
            path_seconds(problem, split) >= seconds)
            continue;
        seconds = path_seconds(problem, split);
        memcpy(given, split->device, split->n * sizeof *given);
    }
    memcpy(split->device, given, split->n * sizeof *given);
}

int mt_place_follow_links(const struct mt_place_problem *problem, const struct mt_chain *chain,
                          struct mt_chain_split *split)
{
    size_t kinds[MT_PLACE_DEVICES_MAX];
    int result = 0;
    if (!problem->link_seconds || split->n < 2)
        return 0;
    for (size_t i = 0; i < split->n; i++)
        kinds[i] = chain->kind_of[split->device[i]];
    if (problem->n_devices <= SETS_OF_MOST)
        result = follow_sets(problem, chain, kinds, split);
    else
        follow_all_nearest(problem, chain, kinds, split);
    /* The way back to the first device is not part of a path. */
    if (!result && (problem->n_devices > SETS_OF_MOST || problem->output_is_input))
        change_places(problem, chain, split);
    return result;
}
