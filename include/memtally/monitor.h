/* SPDX-License-Identifier: MIT */
/* Watches how full one place is: this process's host memory, its control group, or a device.
 *
 *     struct mt_monitor_source source;
 *     struct mt_monitor *monitor;
 *     if (mt_monitor_open_source("host", &source, NULL) == MT_OK &&
 *         mt_monitor_create(&source, NULL, &monitor, NULL) == MT_OK) {
 *         mt_monitor_add_cleanup(monitor, "cache", drop_cache, cache, 0, NULL, NULL);
 *         if (mt_monitor_can_allocate(monitor, bytes, 0.1))
 *             load();
 *         mt_monitor_destroy(monitor);
 *     }
 *
 * A monitor has no thread of its own: its caller records when it likes, 100 times a second or once
 * a minute. Recording keeps a history, counts how often each level of pressure was reached, looks
 * for leaks, and cleans up above a threshold where that is wished.
 *
 * Threads. Every function may be called from any thread, also from callbacks, but nothing may be
 * called while mt_monitor_destroy() runs or after it. Callbacks are called without a lock. */
#ifndef MEMTALLY_MONITOR_H
#define MEMTALLY_MONITOR_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

struct mt_monitor_figures {
    uint64_t total_bytes;
    uint64_t available_bytes; /* that can be had without anyone else's giving up anything */
    uint64_t largest_bytes;   /* block that would be given; MT_UNKNOWN: all that is available */
};

/* One place behind three functions. `read` and `glance` return 0 or a negative MT_E code. */
struct mt_monitor_source {
    const char *name; /* "kernel", "NVML": who says so; static */
    void *context;
    int (*read)(void *context, struct mt_monitor_figures *figures, struct mt_error *error);
    void (*close)(void *context); /* or NULL */
    /* As `read`, for less: figures may be half a second old where nothing hints at a change.
     * NULL: there is no such way. */
    int (*glance)(void *context, struct mt_monitor_figures *figures, struct mt_error *error);
};

/* Opens a place of this machine. "host" is what the caller can have of the machine's memory: what
 * the kernel calls available, or what the limits of the caller's control group leave, whichever is
 * less. "cgroup" is the control group alone. "gpu0", "gpu1" are NVIDIA's devices in the order of
 * their driver. Page cache that the kernel would drop counts as available. "pid:4711" is a program
 * and its descendants: allocated is what they have resident, of all that the host or the program's
 * control group has; pages that they share count for each. Reading it fails with MT_ENOTFOUND once
 * the program has ended. A look at the host takes about 7 microseconds, one at a group 1, a glance
 * at either 0.5; files stay open in between, and a group's limit is read again after a
 * second. A glance asks the kernel how much memory is free. While that is more than a 32nd of the
 * host, and has moved by no more than a 256th of the place since a glance last read the kernel's
 * files, what it read stands, for a quarter of a second at most; a group's page cache for half a
 * second. What is no longer free counts as no longer available on the host, but not as used by a
 * group. On success the caller owns *source until a monitor has it; end it by its `close`. Errors:
 * MT_EARG (no such name), MT_EUNSUPPORTED (the group has no limit; no /proc), MT_ENOTFOUND (no
 * driver, no such device or process), MT_EPERM, MT_EIO, MT_ENOMEM. */
int mt_monitor_open_source(const char *place, struct mt_monitor_source *source,
                           struct mt_error *error);

enum mt_pressure {
    MT_PRESSURE_LOW,
    MT_PRESSURE_MODERATE,
    MT_PRESSURE_HIGH,
    MT_PRESSURE_CRITICAL,
    MT_N_PRESSURES
};

/* The name of a level ("moderate"). Borrowed, static. */
const char *mt_pressure_name(enum mt_pressure pressure);

/* One look. Equation: allocated_bytes == total_bytes - available_bytes. */
struct mt_monitor_snapshot {
    uint64_t time_ns;
    uint64_t total_bytes;
    uint64_t available_bytes;
    uint64_t allocated_bytes; /* by anyone */
    uint64_t pooled_bytes;    /* of those, free in the caller's pools */
    uint64_t largest_bytes;   /* block that can be had now, from the place or from a pool */
    double utilisation_ratio; /* allocated of total */
    enum mt_pressure pressure;
};

/* Zeros are the defaults. */
struct mt_monitor_options {
    size_t history;                          /* snapshots that are kept; 0: 1,000 */
    double level_ratios[MT_N_PRESSURES - 1]; /* where MODERATE, HIGH and CRITICAL begin; all 0: 0.6,
                                               0.8, 0.9 */
    double hysteresis_ratio;           /* a level ends that far below where it begins; 0: 0.02 */
    double cleanup_ratio;              /* recording cleans up from here on; 0: it never does */
    uint64_t cleanup_pause_ns;         /* at least, between two cleanups by itself; 0: 1 s */
    uint64_t callback_ns;              /* that one cleanup callback is waited for; 0: 10 s */
    uint64_t (*now_ns)(void *context); /* the clock; NULL: CLOCK_MONOTONIC */
    /* Called by the recording thread where a level begins, upwards or downwards. NULL: nobody. */
    void (*on_pressure)(void *context, const struct mt_monitor_snapshot *snapshot,
                        enum mt_pressure before);
    void *context; /* handed to the two functions above */
};

struct mt_monitor;

/* Makes a monitor of a source, which it has from then on, also where this fails. `options` may be
 * NULL. The monitor is owned: mt_monitor_destroy(). Errors: MT_EARG (levels that do not rise, a
 * ratio outside 0 to 1), MT_ENOMEM. */
int mt_monitor_create(const struct mt_monitor_source *source,
                      const struct mt_monitor_options *options, struct mt_monitor **monitor,
                      struct mt_error *error);

/* Closes the source. A cleanup callback that hangs is left to itself. NULL is allowed. */
void mt_monitor_destroy(struct mt_monitor *monitor);

/* Looks once and keeps nothing; the pressure is that of the last recording, carried on. Errors:
 * those of the source. */
int mt_monitor_look(struct mt_monitor *monitor, struct mt_monitor_snapshot *snapshot,
                    struct mt_error *error);

/* Looks once and keeps it, and cleans up where that is due; while pressure is below HIGH, it
 * glances where the source can. `snapshot` may be NULL; it is the look before the cleanup. Errors:
 * those of the source. */
int mt_monitor_record(struct mt_monitor *monitor, struct mt_monitor_snapshot *snapshot,
                      struct mt_error *error);

/* How long a caller may wait before it records again, between `least_ns` and `most_ns`: as long as
 * the place cannot reach the next level of pressure, if it fills by 8 GB a second at most. A wake
 * alone costs 15 to 40 microseconds of processor time, three times what a look costs: one that
 * looks 100 times a second where pressure is near, and once a second elsewhere, takes next to
 * nothing. Nothing recorded yet, and the highest level: `least_ns`. */
uint64_t mt_monitor_wait_ns(struct mt_monitor *monitor, uint64_t least_ns, uint64_t most_ns);

/* Copies the newest snapshots, oldest first, at most `capacity`. Returns how many. */
size_t mt_monitor_history(struct mt_monitor *monitor, struct mt_monitor_snapshot *snapshots,
                          size_t capacity);

/* Whether a block of so many bytes can be had now, with `margin_ratio` of its size on top: 0.1 is a
 * tenth. 0 also where the place cannot be read. */
int mt_monitor_can_allocate(struct mt_monitor *monitor, uint64_t bytes, double margin_ratio);

/* Whether at least `threshold_ratio` of the place is allocated; 1 also where it cannot be read. */
int mt_monitor_is_low(struct mt_monitor *monitor, double threshold_ratio);

struct mt_monitor_pooled {
    uint64_t free_bytes;    /* held, but in no block */
    uint64_t largest_bytes; /* block that it would give */
};

/* Asks a pool of the caller for what it holds free, where the place itself has `available_bytes`.
 * Returns 0 or a negative MT_E code, which leaves the pool out. */
typedef int (*mt_monitor_ask_pool)(void *context, uint64_t available_bytes,
                                   struct mt_monitor_pooled *pooled);

/* The pool is asked at each look. Errors: MT_ENOMEM. */
int mt_monitor_add_pool(struct mt_monitor *monitor, mt_monitor_ask_pool ask, void *context,
                        struct mt_error *error);

/* Asks and trims a pool of <memtally/pool.h>, which must outlive the monitor. Errors: MT_ENOMEM. */
int mt_monitor_watch_pool(struct mt_monitor *monitor, struct mt_pool *pool, struct mt_error *error);

/* Gives memory back. Returns the bytes, or MT_UNKNOWN. It is called by a thread of the monitor's.
 * It may hang or end its thread, but not throw. */
typedef uint64_t (*mt_monitor_clean)(void *context);

/* Registers a cleanup. Of two, the one of higher priority goes first; of one priority, the one that
 * gave more bytes for each millisecond so far, and before it who was never called. `name` is
 * copied; *id may be NULL. Errors: MT_ENOMEM. */
int mt_monitor_add_cleanup(struct mt_monitor *monitor, const char *name, mt_monitor_clean clean,
                           void *context, int priority, uint64_t *id, struct mt_error *error);

/* Registers glibc's malloc_trim(). Errors: as mt_monitor_add_cleanup(). */
int mt_monitor_add_heap_trim(struct mt_monitor *monitor, int priority, struct mt_error *error);

/* Takes a cleanup or does nothing. Errors: MT_EBUSY (it is being called), MT_ENOTFOUND. */
int mt_monitor_remove_cleanup(struct mt_monitor *monitor, uint64_t id);

#define MT_MONITOR_CALLS 32

struct mt_monitor_call {
    char name[32];
    uint64_t freed_bytes; /* as it says, else as the place grew meanwhile */
    uint64_t took_ns;
    int hangs; /* it had not returned within callback_ns, and is not called before it has */
};

struct mt_monitor_cleanup {
    uint64_t before_bytes; /* available */
    uint64_t after_bytes;
    size_t n_calls; /* of which the first MT_MONITOR_CALLS are told */
    struct mt_monitor_call calls[MT_MONITOR_CALLS];
};

/* Calls cleanups in their order until `target_bytes` are available; MT_UNKNOWN: all of them.
 * `cleanup` may be NULL. Errors: MT_EBUSY (another cleanup is under way), MT_ENOMEM, those of the
 * source. */
int mt_monitor_cleanup(struct mt_monitor *monitor, uint64_t target_bytes,
                       struct mt_monitor_cleanup *cleanup, struct mt_error *error);

enum mt_leak {
    MT_LEAK_NONE,
    MT_LEAK_FAST, /* more than a fifth in five minutes, throughout them */
    MT_LEAK_SLOW  /* a slope whose interval excludes zero, for eight minutes */
};

/* The growth of what is allocated. Times are MT_UNKNOWN where nothing grows. */
struct mt_monitor_growth {
    enum mt_leak leak;
    double bytes_per_s;     /* Theil-Sen slope of the lower envelope */
    double low_bytes_per_s; /* its interval of 99 % */
    double high_bytes_per_s;
    uint64_t full_ns;     /* until nothing is available, at that slope */
    uint64_t full_low_ns; /* at the steeper end of the interval */
};

struct mt_monitor_stats {
    uint64_t n_records;
    uint64_t n_failures; /* of the source, while recording */
    uint64_t peak_bytes; /* allocated */
    double average_bytes;
    uint64_t n_events[MT_N_PRESSURES];      /* how often each level began, from whatever side */
    uint64_t last_event_ns[MT_N_PRESSURES]; /* of the clock; MT_UNKNOWN: never */
    uint64_t n_cleanups;
    uint64_t cleaned_bytes;
    uint64_t n_leaks; /* alarms: one for each time that growth became a leak */
    struct mt_monitor_growth growth;
};

/* Reads what was recorded so far. It does not look at the place. */
void mt_monitor_stats_read(struct mt_monitor *monitor, struct mt_monitor_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
