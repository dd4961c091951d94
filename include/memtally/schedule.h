/* SPDX-License-Identifier: MIT */
/* In which order programs are started that share memory, so that all have ended soon. Pure
 * functions.
 *
 * Each program needs bytes of places for as long as it runs. Whoever follows an order starts, at
 * the beginning and whenever a program has ended, each that is not started and that fits, from the
 * front. */
#ifndef MEMTALLY_SCHEDULE_H
#define MEMTALLY_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

#define MT_SCHEDULE_PLACES 17

struct mt_schedule_item {
    uint64_t bytes[MT_SCHEDULE_PLACES]; /* of each place */
    uint64_t any_bytes; /* of one place from `first_any` on, whichever has room; 0: none */
    double seconds;     /* that it runs, above 0 */
};

struct mt_schedule_room {
    uint64_t bytes[MT_SCHEDULE_PLACES]; /* of each place */
    size_t n_places;
    size_t first_any; /* the first place that is alike with those after it */
    size_t n_jobs;    /* at a time; 0: any number */
};

struct mt_schedule {
    double seconds;       /* until all have ended */
    double least_seconds; /* no order takes less */
    int is_small_first;
};

/* Fills in order[0..n) with numbers of items: those that need least first, unless that takes more
 * than a tenth above the least; then the best of several orders. Items must fit alone. Takes about
 * n * n steps, and more of them while the order is not good enough.
 * Errors: MT_EARG (an item that does not fit, or runs no time), MT_ENOMEM. */
int mt_schedule_plan(const struct mt_schedule_item *items, size_t n,
                     const struct mt_schedule_room *room, size_t *order,
                     struct mt_schedule *schedule, struct mt_error *error);

/* How long an order takes. Errors: as above. */
int mt_schedule_time(const struct mt_schedule_item *items, size_t n,
                     const struct mt_schedule_room *room, const size_t *order, double *seconds,
                     struct mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
