/* SPDX-License-Identifier: MIT */
/* The measurements under way in this process.
 *
 * The kernel keeps one high-water mark for a process, so measurements that overlap have to share
 * it: whoever resets the mark first hands its value to all that are under way. */
#ifndef MT_MEASURE_REGISTRY_H
#define MT_MEASURE_REGISTRY_H

#include <pthread.h>
#include <stdint.h>

#include "measure/os.h"

struct mt_error; /* <memtally/error.h> */

/* One measurement; lives on the stack of its call while it is in the list. All but `baseline_bytes`
 * and `after_bytes` may be written by other threads under the registry's lock until its end. */
struct mt_measurement {
    struct mt_measurement *next;
    pthread_t thread;
    int exact;
    int overlapped;
    uint64_t baseline_bytes;
    uint64_t peak_bytes; /* the largest seen so far, >= baseline_bytes */
    uint64_t after_bytes;
    uint64_t excluded_ns; /* time that measurements nested in this one took for themselves */
};

struct mt_measure_registry {
    pthread_mutex_t lock;
    struct mt_measurement *first;
    unsigned generation; /* how many forks lie between this process and the library's loading */
};

/* The registry of the process. A fork gives the child an empty one of a new generation. */
struct mt_measure_registry *mt_measure_process_registry(void);

/* Begins: takes the baseline and enters the list. With `exact`, the mark is handed round and reset.
 * On failure nothing is entered. Errors: as mt_resident_read(). */
int mt_measurement_begin(struct mt_measurement *measurement, struct mt_measure_registry *registry,
                         const struct mt_measure_os *os, int exact, struct mt_error *error);

/* Ends: reads the size after the call and leaves the list, the latter also on failure.
 * Errors: as mt_resident_read(). */
int mt_measurement_end(struct mt_measurement *measurement, struct mt_measure_registry *registry,
                       const struct mt_measure_os *os, struct mt_error *error);

/* Adds work_ns to what the measurements around this one, on this thread, exclude. */
void mt_measure_exclude(struct mt_measure_registry *registry, uint64_t work_ns);

#endif
