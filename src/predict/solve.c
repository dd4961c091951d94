/* SPDX-License-Identifier: MIT */
/* Inverse queries: the largest setting that fits. Knows how settings are tried, not what they cost.
 *
 * What a setting costs mostly grows with it, but not always: padding is a saw-tooth, a larger
 * context may let the graph allocator find a better place. So the boundary that the search finds is
 * only a candidate, and the values beyond it are looked at too. */
#include <math.h>
#include <memtally/model_file.h>
#include <memtally/predict.h>
#include <memtally/units.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "engine/engine.h"
#include "sheet_internal.h"

#define MIB             (UINT64_C(1) << 20)
#define DEVICE_MOST_MIB (UINT64_C(1) << 24)
#define CONTEXT_MOST    (UINT64_C(1) << 24) /* of a model that does not say */
#define SEQUENCES_MOST  256
#define LOOK_BEYOND     8 /* values past the boundary that are tried */
#define CONTEXT_STEP    256

/* A query under way. Values are counted from 1 to `n`, smallest demand first; `best` is the
 * estimate of `best_index`. */
struct query {
    const struct mt_model *model;
    struct mt_engine engine;
    struct mt_predict_settings settings;
    enum mt_goal goal;
    uint64_t step;
    uint64_t n;
    uint64_t each_tokens;  /* of each sequence */
    uint64_t batch;        /* that the engine takes by itself, or that was given */
    int context_is_shared; /* the engine divides the context among its sequences */
    int has_budget;
    uint64_t *device_bytes;
    uint64_t guess; /* an index near the answer, or 0 */
    double slack;   /* of the value tried last: bytes that the tightest place has left */
    double best_slack;
    uint64_t best_index;
    struct mt_estimate *best;
    struct mt_error *error;
};

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t value_at(const struct query *query, uint64_t index)
{
    if (query->goal == MT_GOAL_SMALLEST_DEVICE)
        return (query->n + 1 - index) * query->step;
    return index * query->step;
}

static void set(struct query *query, uint64_t value)
{
    struct mt_predict_settings *settings = &query->settings;
    switch (query->goal) {
    case MT_GOAL_CONTEXT:
        settings->context_tokens = value;
        break;
    case MT_GOAL_SEQUENCES:
        settings->sequences = value;
        if (query->context_is_shared)
            settings->context_tokens = value * query->each_tokens;
        break;
    case MT_GOAL_BATCH:
        if (query->has_budget) {
            settings->batched_tokens = value;
            break;
        }
        settings->ubatch = value;
        settings->batch = larger(query->batch, value);
        break;
    case MT_GOAL_SMALLEST_DEVICE:
        for (size_t i = 0; i < settings->n_devices; i++)
            query->device_bytes[i] = value;
        break;
    }
}

/* An engine with a budget takes as many sequences as it is told; that they fit at once is asked of
 * the pool, at its low end. */
static int holds_sequences(const struct query *query, const struct mt_estimate *estimate)
{
    const struct mt_estimate_pool *pool = &estimate->pool;
    if (query->goal != MT_GOAL_SEQUENCES || !pool->present || !pool->pool_tokens)
        return 1;
    double sure = (double)pool->pool_tokens_low / (double)pool->pool_tokens;
    return pool->concurrency * sure >= (double)estimate->settings.sequences;
}

/* What the high end leaves of the place that has least; negative where it does not fit. */
static double slack_of(const struct mt_estimate *estimate)
{
    const struct mt_predict_settings *settings = &estimate->settings;
    double least = HUGE_VAL;
    for (size_t i = 0; i < estimate->tally.n_places; i++) {
        const struct mt_tally_place *place = &estimate->tally.places[i];
        uint64_t used = i == 0                        ? settings->host_used_bytes
                        : settings->device_used_bytes ? settings->device_used_bytes[i - 1]
                                                      : 0;
        if (place->capacity_bytes == MT_UNKNOWN || place->total_high_bytes == MT_UNKNOWN)
            continue;
        double left =
            (double)place->capacity_bytes - (double)used - (double)place->total_high_bytes;
        least = left < least ? left : least;
    }
    return least;
}

/* Whether the value fits; the largest one that does is kept. Returns 1, 0, or an error. */
static int try(struct query *query, uint64_t index)
{
    struct mt_estimate *estimate;
    set(query, value_at(query, index));
    int result = mt_estimate_once(&query->engine, query->model, &query->settings, NULL, &estimate,
                                  query->error);
    if (result < 0)
        return result;
    int fits = estimate->fits_as_counted && holds_sequences(query, estimate);
    query->slack = slack_of(estimate);
    if (!fits || index <= query->best_index) {
        mt_estimate_destroy(estimate);
        return fits;
    }
    mt_estimate_destroy(query->best);
    query->best = estimate;
    query->best_index = index;
    query->best_slack = query->slack;
    return 1;
}

/* Where a straight line between what fits and what does not has nothing left. What is asked for
 * grows with most settings as a line does, so that this finds the boundary in a few steps; where it
 * says nothing, the middle. */
static uint64_t between(const struct query *query, uint64_t beyond, double beyond_slack)
{
    uint64_t range = beyond - query->best_index;
    if (!query->best_index || !(query->best_slack >= 0) || !(beyond_slack < 0) ||
        isinf(query->best_slack) || isinf(beyond_slack))
        return query->best_index + range / 2;
    double share = query->best_slack / (query->best_slack - beyond_slack);
    uint64_t offset = (uint64_t)(share * (double)range);
    if (offset < 1)
        offset = 1;
    return query->best_index + (offset < range ? offset : range - 1);
}

/* Narrows down between `best_index`, which fits or is 0, and `beyond`, which does not fit. Every
 * third step takes the middle, whatever the line says. */
static int narrow(struct query *query, uint64_t beyond, double beyond_slack)
{
    for (unsigned steps = 1; beyond - query->best_index > 1; steps++) {
        uint64_t at = between(query, beyond, steps % 3 ? beyond_slack : 0);
        int fits = try(query, at);
        if (fits < 0)
            return fits;
        if (!fits) {
            beyond = at;
            beyond_slack = query->slack;
        }
    }
    return 0;
}

/* Tries the values just past the boundary. Returns 1 where one of them fits, 0, or an error. */
static int look_beyond(struct query *query)
{
    uint64_t boundary = query->best_index;
    for (uint64_t i = 2; i <= LOOK_BEYOND && boundary + i < query->n; i++) {
        int fits = try(query, boundary + i);
        if (fits)
            return fits;
    }
    return 0;
}

/* Narrows the search from the guess outwards, in steps that double. *beyond does not fit after it.
 */
static int gallop(struct query *query, uint64_t *beyond)
{
    int fits = try(query, query->guess);
    for (uint64_t step = 1; fits > 0 && query->guess + step < *beyond; step *= 2) {
        fits = try(query, query->guess + step);
        if (fits == 0)
            *beyond = query->guess + step;
    }
    if (fits || query->best_index)
        return fits < 0 ? fits : 0;
    *beyond = query->guess;
    for (uint64_t step = 1; !fits && step < query->guess; step *= 2) {
        fits = try(query, query->guess - step);
        if (fits == 0)
            *beyond = query->guess - step;
    }
    return fits < 0 ? fits : 0;
}

static int search(struct query *query)
{
    uint64_t beyond = query->n;
    int result = try(query, query->n);
    double most_slack = query->slack;
    if (result)
        return result < 0 ? result : 0;
    result = query->guess ? gallop(query, &beyond) : try(query, 1);
    while (result >= 0) {
        result = narrow(query, beyond, beyond == query->n ? most_slack : 0);
        if (result == 0)
            result = look_beyond(query);
        if (result <= 0)
            return result;
        beyond = query->n;
    }
    return result;
}

/* The engine's own answer to the settings as they are, for what the query needs of it. */
static int ask(struct query *query, struct mt_estimate **estimate)
{
    return mt_estimate_once(&query->engine, query->model, &query->settings, NULL, estimate,
                            query->error);
}

/* Contexts between two steps take what the larger one takes. */
static uint64_t step_of(const struct mt_engine *engine)
{
    uint64_t flash = mt_engine_number(engine, "cache.pad.flash", 0);
    uint64_t plain = mt_engine_number(engine, "cache.pad.plain", flash);
    if (flash && plain)
        return flash < plain ? flash : plain;
    return larger(mt_engine_number(engine, "block_tokens", CONTEXT_STEP), 1);
}

static int prepare_context(struct query *query)
{
    uint64_t most = mt_model_describe(query->model)->context_length;
    query->step = step_of(&query->engine);
    if (!most)
        most = CONTEXT_MOST;
    query->n = larger(most / query->step, 1);
    return 0;
}

static int prepare_counts(struct query *query)
{
    struct mt_estimate *estimate;
    int result = ask(query, &estimate);
    if (result < 0)
        return result;
    const struct mt_predict_settings *complete = &estimate->settings;
    query->has_budget = estimate->pool.present;
    query->batch = complete->batch;
    query->step = 1;
    query->context_is_shared = mt_engine_has(&query->engine, "flag.style", "server");
    query->each_tokens = complete->context_tokens / larger(query->settings.sequences, 1);
    if (query->goal == MT_GOAL_SEQUENCES)
        query->n = mt_engine_number(&query->engine, "sequences.max", SEQUENCES_MOST);
    else
        query->n = larger(complete->context_tokens, 1);
    mt_estimate_destroy(estimate);
    return query->each_tokens ? 0
                              : mt_fail(query->error, MT_EARG, MT_NO_OFFSET,
                                        "there are more sequences than tokens of context");
}

/* What the fullest of huge devices takes is about what a small one must have. An engine with a
 * budget takes its share of any device. */
static int guess_device(struct query *query)
{
    struct mt_estimate *estimate;
    const struct mt_predict_settings *settings = &query->settings;
    uint64_t most = 0;
    set(query, DEVICE_MOST_MIB * MIB);
    int result = ask(query, &estimate);
    if (result < 0)
        return result;
    for (size_t i = 0; i < settings->n_devices; i++) {
        uint64_t used = settings->device_used_bytes ? settings->device_used_bytes[i] : 0;
        most = larger(most, estimate->tally.places[i + 1].total_high_bytes + used);
    }
    if (!estimate->pool.present && most / MIB < DEVICE_MOST_MIB)
        query->guess = query->n - most / MIB;
    mt_estimate_destroy(estimate);
    return 0;
}

static int prepare_device(struct query *query)
{
    struct mt_predict_settings *settings = &query->settings;
    query->device_bytes = calloc(settings->n_devices, sizeof *query->device_bytes);
    if (!query->device_bytes)
        return mt_out_of_memory(query->error);
    settings->device_bytes = query->device_bytes;
    settings->sizes_are_sought = 1;
    query->step = MIB;
    query->n = DEVICE_MOST_MIB;
    return guess_device(query);
}

/* If no setting says how many layers go to devices, all do, even if the engine by itself would
 * leave them all on the host. */
static void prepare_layers(struct mt_predict_settings *settings, const struct mt_engine *engine)
{
    if (settings->has_gpu_layers || !settings->n_devices ||
        !mt_engine_has(engine, "flag", "gpu_layers"))
        return;
    settings->has_gpu_layers = 1;
    settings->gpu_layers = MT_ALL;
}

static int prepare(struct query *query)
{
    struct mt_predict_settings *settings = &query->settings;
    int result = mt_engine_find(settings->engine, &query->engine, query->error);
    if (result < 0)
        return result;
    if (query->goal == MT_GOAL_SMALLEST_DEVICE && !settings->n_devices)
        settings->n_devices = 1;
    prepare_layers(settings, &query->engine);
    if (query->goal == MT_GOAL_SMALLEST_DEVICE)
        return prepare_device(query);
    if (!settings->n_devices && !settings->host_bytes)
        return mt_fail(query->error, MT_EARG, MT_NO_OFFSET,
                       "give a capacity; without one memtally cannot say what fits");
    return query->goal == MT_GOAL_CONTEXT ? prepare_context(query) : prepare_counts(query);
}

int mt_estimate_solve(const struct mt_model *model, const struct mt_predict_settings *settings,
                      enum mt_goal goal, uint64_t *answer, struct mt_estimate **estimate,
                      struct mt_error *error)
{
    struct query query = {.model = model, .settings = *settings, .goal = goal, .error = error};
    int result = prepare(&query);
    if (result == 0)
        result = search(&query);
    free(query.device_bytes);
    if (result < 0) {
        mt_estimate_destroy(query.best);
        return result;
    }
    *answer = query.best ? value_at(&query, query.best_index) : 0;
    if (query.best)
        *estimate = query.best;
    return 0;
}
