/* SPDX-License-Identifier: MIT */
/* One monitor. `lock` guards all but what is set once. It is counted: threads that clean up hold it
 * too, because one that hangs outlives its monitor's owner. */
#ifndef MT_GUARD_MONITOR_H
#define MT_GUARD_MONITOR_H

#include <pthread.h>

#include <memtally/monitor.h>

#include "guard/growth.h"

/* The outside world of this room. */
struct mt_monitor_os {
    void *context;
    uint64_t (*now_ns)(void *context);
    /* Waits for `condition` at most `timeout_ns`, with `lock` held before and after. Returns 0
     * where it may have been signalled, nonzero where the time is over. */
    int (*wait)(void *context, pthread_cond_t *condition, pthread_mutex_t *lock,
                uint64_t timeout_ns);
};

struct cleanup {
    uint64_t id;
    char name[32];
    mt_monitor_clean clean;
    void *context;
    int priority;
    int is_called;
    uint64_t round; /* of the cleanup that called it last */
    uint64_t n_calls;
    double freed_bytes; /* in all calls that returned */
    double took_ns;
    uint64_t last_freed_bytes; /* of the last call that returned, as it said */
    uint64_t last_took_ns;
};

struct pool_source {
    mt_monitor_ask_pool ask;
    void *context;
};

struct mt_monitor {
    struct mt_monitor_source source;
    struct mt_monitor_options options;
    struct mt_monitor_os os;
    pthread_mutex_t lock;
    pthread_cond_t condition; /* a cleanup callback returned */
    size_t n_holders;         /* the owner, and threads that clean up */

    struct mt_monitor_snapshot *history; /* a ring */
    size_t n_history;
    size_t next_history;
    enum mt_pressure pressure;
    struct mt_growth_bins trend;
    struct mt_monitor_stats stats;
    double allocated_sum;

    struct cleanup **cleanups; /* each is owned, so that it stays where it is */
    size_t n_cleanups;
    uint64_t last_id;
    uint64_t round;
    int is_cleaning;
    uint64_t last_cleanup_ns; /* MT_UNKNOWN: never */
    struct pool_source *pools;
    size_t n_pools;
};

/* As mt_monitor_create(), with `os` in place of this machine's clock and waiting. */
int mt_monitor_create_with(const struct mt_monitor_os *os, const struct mt_monitor_source *source,
                           const struct mt_monitor_options *options, struct mt_monitor **monitor,
                           struct mt_error *error);

/* Lets go of a monitor, with `lock` held, which is not after it. */
void mt_monitor_release(struct mt_monitor *monitor);

#endif
