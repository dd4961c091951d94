/* SPDX-License-Identifier: MIT */
/* One place: looks, history, events, and what can be had of it. The source and the pools are asked
 * without the lock, because they may be slow; what they said is put in under it. */
#include "guard/monitor.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <memtally/units.h>

#include "base/error.h"
#include "base/ticks.h"
#include "guard/pressure.h"

#define HISTORY_DEFAULT 1000u
#define HYSTERESIS      0.02
#define PAUSE_NS        1000000000u
#define CALLBACK_NS     10000000000u
#define NS_PER_S        1000000000u
#define BYTES_PER_NS    8u /* that a place fills by at most */

/* ---- making and ending ---- */

static uint64_t machine_now_ns(void *context)
{
    (void)context;
    return mt_monotonic_ns();
}

static int machine_wait(void *context, pthread_cond_t *condition, pthread_mutex_t *lock,
                        uint64_t timeout_ns)
{
    uint64_t until = mt_monotonic_ns() + timeout_ns;
    struct timespec time = {.tv_sec = (time_t)(until / NS_PER_S),
                            .tv_nsec = (long)(until % NS_PER_S)};
    (void)context;
    return pthread_cond_timedwait(condition, lock, &time);
}

static int has_levels(const struct mt_monitor_options *options)
{
    for (size_t i = 0; i < MT_N_PRESSURES - 1; i++)
        if (options->level_ratios[i] != 0)
            return 1;
    return 0;
}

static void fill_defaults(struct mt_monitor_options *options)
{
    static const double levels[MT_N_PRESSURES - 1] = {0.6, 0.8, 0.9};
    if (!options->history)
        options->history = HISTORY_DEFAULT;
    if (!has_levels(options))
        memcpy(options->level_ratios, levels, sizeof levels);
    if (options->hysteresis_ratio == 0)
        options->hysteresis_ratio = HYSTERESIS;
    if (!options->cleanup_pause_ns)
        options->cleanup_pause_ns = PAUSE_NS;
    if (!options->callback_ns)
        options->callback_ns = CALLBACK_NS;
}

static int is_ratio(double ratio)
{
    return ratio >= 0 && ratio <= 1;
}

static int check_options(const struct mt_monitor_options *options, struct mt_error *error)
{
    double before = 0;
    int is_right = is_ratio(options->hysteresis_ratio) && is_ratio(options->cleanup_ratio) &&
                   options->history <= SIZE_MAX / sizeof(struct mt_monitor_snapshot);
    for (size_t i = 0; i < MT_N_PRESSURES - 1; i++) {
        is_right =
            is_right && is_ratio(options->level_ratios[i]) && options->level_ratios[i] > before;
        before = options->level_ratios[i];
    }
    return is_right ? 0
                    : mt_fail(error, MT_EARG, MT_NO_OFFSET,
                              "levels of pressure must rise, and ratios be between 0 and 1");
}

static void init_locks(struct mt_monitor *monitor)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&monitor->lock, NULL);
    pthread_cond_init(&monitor->condition, &clock);
    pthread_condattr_destroy(&clock);
}

static void close_source(const struct mt_monitor_source *source)
{
    if (source->close)
        source->close(source->context);
}

int mt_monitor_create_with(const struct mt_monitor_os *os, const struct mt_monitor_source *source,
                           const struct mt_monitor_options *options, struct mt_monitor **monitor,
                           struct mt_error *error)
{
    struct mt_monitor_options chosen = options ? *options : (struct mt_monitor_options){0};
    fill_defaults(&chosen);
    int status = check_options(&chosen, error);
    struct mt_monitor *made = status ? NULL : calloc(1, sizeof *made);
    if (made)
        made->history = calloc(chosen.history, sizeof *made->history);
    if (status == 0 && (!made || !made->history))
        status = mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a monitor");
    if (status) {
        free(made);
        close_source(source);
        return status;
    }
    made->source = *source;
    made->options = chosen;
    made->os = *os;
    made->n_holders = 1;
    made->last_cleanup_ns = MT_UNKNOWN;
    for (size_t i = 0; i < MT_N_PRESSURES; i++)
        made->stats.last_event_ns[i] = MT_UNKNOWN;
    made->stats.growth.full_ns = made->stats.growth.full_low_ns = MT_UNKNOWN;
    init_locks(made);
    *monitor = made;
    return 0;
}

int mt_monitor_create(const struct mt_monitor_source *source,
                      const struct mt_monitor_options *options, struct mt_monitor **monitor,
                      struct mt_error *error)
{
    struct mt_monitor_os os = {.now_ns = machine_now_ns, .wait = machine_wait};
    if (options && options->now_ns) {
        os.now_ns = options->now_ns;
        os.context = options->context;
    }
    return mt_monitor_create_with(&os, source, options, monitor, error);
}

void mt_monitor_release(struct mt_monitor *monitor)
{
    int is_last = --monitor->n_holders == 0;
    pthread_mutex_unlock(&monitor->lock);
    if (!is_last)
        return;
    for (size_t i = 0; i < monitor->n_cleanups; i++)
        free(monitor->cleanups[i]);
    free(monitor->cleanups);
    free(monitor->pools);
    free(monitor->history);
    pthread_cond_destroy(&monitor->condition);
    pthread_mutex_destroy(&monitor->lock);
    free(monitor);
}

void mt_monitor_destroy(struct mt_monitor *monitor)
{
    if (!monitor)
        return;
    close_source(&monitor->source);
    pthread_mutex_lock(&monitor->lock);
    mt_monitor_release(monitor);
}

/* ---- looking ---- */

/* Asks pools without the lock. They are only ever added, so that a copy is right. */
static void ask_pools(struct mt_monitor *monitor, struct mt_monitor_snapshot *snapshot)
{
    for (size_t i = 0;; i++) {
        struct mt_monitor_pooled pooled = {0};
        pthread_mutex_lock(&monitor->lock);
        struct pool_source pool =
            i < monitor->n_pools ? monitor->pools[i] : (struct pool_source){0};
        pthread_mutex_unlock(&monitor->lock);
        if (!pool.ask)
            return;
        if (pool.ask(pool.context, snapshot->available_bytes, &pooled) != 0)
            continue;
        snapshot->pooled_bytes += pooled.free_bytes;
        if (pooled.largest_bytes > snapshot->largest_bytes)
            snapshot->largest_bytes = pooled.largest_bytes;
    }
}

static int look(struct mt_monitor *monitor, int is_glance, struct mt_monitor_snapshot *snapshot,
                struct mt_error *error)
{
    const struct mt_monitor_source *source = &monitor->source;
    struct mt_monitor_figures figures = {0, 0, MT_UNKNOWN};
    int status = is_glance && source->glance ? source->glance(source->context, &figures, error)
                                             : source->read(source->context, &figures, error);
    if (status)
        return status;
    if (figures.available_bytes > figures.total_bytes)
        figures.available_bytes = figures.total_bytes;
    *snapshot = (struct mt_monitor_snapshot){
        .time_ns = monitor->os.now_ns(monitor->os.context),
        .total_bytes = figures.total_bytes,
        .available_bytes = figures.available_bytes,
        .allocated_bytes = figures.total_bytes - figures.available_bytes,
        .largest_bytes = figures.largest_bytes < figures.available_bytes ? figures.largest_bytes
                                                                         : figures.available_bytes,
    };
    snapshot->utilisation_ratio =
        figures.total_bytes ? (double)snapshot->allocated_bytes / (double)figures.total_bytes : 1;
    ask_pools(monitor, snapshot);
    return 0;
}

static enum mt_pressure pressure_at(const struct mt_monitor *monitor, double utilisation_ratio)
{
    return mt_pressure_after(monitor->options.level_ratios, monitor->options.hysteresis_ratio,
                             monitor->pressure, utilisation_ratio);
}

int mt_monitor_look(struct mt_monitor *monitor, struct mt_monitor_snapshot *snapshot,
                    struct mt_error *error)
{
    struct mt_monitor_snapshot seen;
    int status = look(monitor, 0, &seen, error);
    if (status)
        return status;
    pthread_mutex_lock(&monitor->lock);
    seen.pressure = pressure_at(monitor, seen.utilisation_ratio);
    pthread_mutex_unlock(&monitor->lock);
    *snapshot = seen;
    return 0;
}

/* ---- recording ---- */

static void keep(struct mt_monitor *monitor, const struct mt_monitor_snapshot *snapshot)
{
    struct mt_monitor_stats *stats = &monitor->stats;
    monitor->history[monitor->next_history] = *snapshot;
    monitor->next_history = (monitor->next_history + 1) % monitor->options.history;
    if (monitor->n_history < monitor->options.history)
        monitor->n_history++;
    stats->n_records++;
    monitor->allocated_sum += (double)snapshot->allocated_bytes;
    if (snapshot->allocated_bytes > stats->peak_bytes)
        stats->peak_bytes = snapshot->allocated_bytes;
}

static void follow_growth(struct mt_monitor *monitor, const struct mt_monitor_snapshot *snapshot)
{
    struct mt_monitor_stats *stats = &monitor->stats;
    enum mt_leak before = stats->growth.leak;
    if (!mt_growth_add(&monitor->trend, snapshot->time_ns, snapshot->allocated_bytes))
        return;
    mt_growth_of(&monitor->trend, snapshot->available_bytes, &stats->growth);
    if (before == MT_LEAK_NONE && stats->growth.leak != MT_LEAK_NONE)
        stats->n_leaks++;
}

/* Whether recording has to clean up now. */
static int is_cleanup_due(const struct mt_monitor *monitor,
                          const struct mt_monitor_snapshot *snapshot)
{
    const struct mt_monitor_options *options = &monitor->options;
    return options->cleanup_ratio > 0 && snapshot->utilisation_ratio >= options->cleanup_ratio &&
           !monitor->is_cleaning &&
           (monitor->last_cleanup_ns == MT_UNKNOWN ||
            snapshot->time_ns >= monitor->last_cleanup_ns + options->cleanup_pause_ns);
}

static uint64_t cleanup_target(const struct mt_monitor *monitor, uint64_t total_bytes)
{
    double ratio = 1 - monitor->options.cleanup_ratio + monitor->options.hysteresis_ratio;
    return (uint64_t)((double)total_bytes * fmin(ratio, 1));
}

/* Whether a glance will do. */
static int is_calm(struct mt_monitor *monitor)
{
    pthread_mutex_lock(&monitor->lock);
    int calm = monitor->pressure < MT_PRESSURE_HIGH;
    pthread_mutex_unlock(&monitor->lock);
    return calm;
}

int mt_monitor_record(struct mt_monitor *monitor, struct mt_monitor_snapshot *snapshot,
                      struct mt_error *error)
{
    struct mt_monitor_snapshot seen;
    int status = look(monitor, is_calm(monitor), &seen, error);
    pthread_mutex_lock(&monitor->lock);
    if (status) {
        monitor->stats.n_failures++;
        pthread_mutex_unlock(&monitor->lock);
        return status;
    }
    enum mt_pressure before = monitor->pressure;
    seen.pressure = pressure_at(monitor, seen.utilisation_ratio);
    monitor->pressure = seen.pressure;
    if (seen.pressure != before) {
        monitor->stats.n_events[seen.pressure]++;
        monitor->stats.last_event_ns[seen.pressure] = seen.time_ns;
    }
    keep(monitor, &seen);
    follow_growth(monitor, &seen);
    int is_due = is_cleanup_due(monitor, &seen);
    uint64_t target_bytes = cleanup_target(monitor, seen.total_bytes);
    pthread_mutex_unlock(&monitor->lock);
    if (seen.pressure != before && monitor->options.on_pressure)
        monitor->options.on_pressure(monitor->options.context, &seen, before);
    if (is_due)
        mt_monitor_cleanup(monitor, target_bytes, NULL, NULL);
    if (snapshot)
        *snapshot = seen;
    return 0;
}

uint64_t mt_monitor_wait_ns(struct mt_monitor *monitor, uint64_t least_ns, uint64_t most_ns)
{
    struct mt_monitor_snapshot last;
    if (mt_monitor_history(monitor, &last, 1) == 0 || last.pressure == MT_PRESSURE_CRITICAL)
        return least_ns;
    double level = monitor->options.level_ratios[last.pressure] * (double)last.total_bytes;
    double ns = (level - (double)last.allocated_bytes) / BYTES_PER_NS;
    return ns <= (double)least_ns ? least_ns : ns >= (double)most_ns ? most_ns : (uint64_t)ns;
}

size_t mt_monitor_history(struct mt_monitor *monitor, struct mt_monitor_snapshot *snapshots,
                          size_t capacity)
{
    pthread_mutex_lock(&monitor->lock);
    size_t n = monitor->n_history < capacity ? monitor->n_history : capacity;
    size_t size = monitor->options.history;
    for (size_t i = 0; i < n; i++)
        snapshots[i] = monitor->history[(monitor->next_history + size - n + i) % size];
    pthread_mutex_unlock(&monitor->lock);
    return n;
}

void mt_monitor_stats_read(struct mt_monitor *monitor, struct mt_monitor_stats *stats)
{
    pthread_mutex_lock(&monitor->lock);
    *stats = monitor->stats;
    stats->average_bytes = stats->n_records ? monitor->allocated_sum / (double)stats->n_records : 0;
    pthread_mutex_unlock(&monitor->lock);
}

/* ---- what can be had ---- */

int mt_monitor_can_allocate(struct mt_monitor *monitor, uint64_t bytes, double margin_ratio)
{
    struct mt_monitor_snapshot seen;
    if (look(monitor, 0, &seen, NULL) != 0)
        return 0;
    double wanted = (double)bytes * (1 + fmax(margin_ratio, 0));
    return bytes <= seen.largest_bytes && wanted <= (double)seen.largest_bytes;
}

int mt_monitor_is_low(struct mt_monitor *monitor, double threshold_ratio)
{
    struct mt_monitor_snapshot seen;
    return look(monitor, 0, &seen, NULL) != 0 || seen.utilisation_ratio >= threshold_ratio;
}

/* ---- pools ---- */

int mt_monitor_add_pool(struct mt_monitor *monitor, mt_monitor_ask_pool ask, void *context,
                        struct mt_error *error)
{
    pthread_mutex_lock(&monitor->lock);
    struct pool_source *pools =
        realloc(monitor->pools, (monitor->n_pools + 1) * sizeof *monitor->pools);
    if (pools) {
        monitor->pools = pools;
        pools[monitor->n_pools++] = (struct pool_source){ask, context};
    }
    pthread_mutex_unlock(&monitor->lock);
    return pools ? 0 : mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a monitor's pool");
}

static int ask_own_pool(void *context, uint64_t available_bytes, struct mt_monitor_pooled *pooled)
{
    struct mt_pool_stats stats;
    mt_pool_stats_read(context, &stats);
    pooled->free_bytes = stats.free_bytes + stats.front_bytes + stats.spare_bytes;
    pooled->largest_bytes = stats.largest_free_bytes;
    (void)available_bytes;
    return 0;
}

static uint64_t trim_own_pool(void *context)
{
    return mt_pool_trim(context, 0);
}

int mt_monitor_watch_pool(struct mt_monitor *monitor, struct mt_pool *pool, struct mt_error *error)
{
    int status = mt_monitor_add_cleanup(monitor, "pool", trim_own_pool, pool, 0, NULL, error);
    return status ? status : mt_monitor_add_pool(monitor, ask_own_pool, pool, error);
}
