/* SPDX-License-Identifier: MIT */
/* Sharing the high-water mark between measurements. Knows who is under way, and nothing of
 * functions, options and devices. */
#include "measure/registry.h"

#include <memtally/error_code.h>

#include "measure/resident.h"

/* The one mutable object here, and one for the process because the mark in the kernel is: a
 * measurement that resets it has to know of all others. */
static struct {
    struct mt_measure_registry registry;
    pthread_once_t fork_handlers;
} process = {{PTHREAD_MUTEX_INITIALIZER, NULL, 0}, PTHREAD_ONCE_INIT};

static void before_fork(void)
{
    pthread_mutex_lock(&process.registry.lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&process.registry.lock);
}

/* The threads that were measuring are not in the child, and its mark is its own. */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&process.registry.lock, NULL);
    process.registry.first = NULL;
    process.registry.generation++;
}

static void set_fork_handlers(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

struct mt_measure_registry *mt_measure_process_registry(void)
{
    pthread_once(&process.fork_handlers, set_fork_handlers);
    return &process.registry;
}

static void unlock(struct mt_measure_registry **registry)
{
    pthread_mutex_unlock(&(*registry)->lock);
}

static void hand_round(struct mt_measure_registry *registry, uint64_t mark_bytes)
{
    for (struct mt_measurement *m = registry->first; m; m = m->next)
        if (m->exact && m->peak_bytes < mark_bytes)
            m->peak_bytes = mark_bytes;
}

/* Reads the mark for all before it is lost, resets it, and reads again. */
static int begin_exact(struct mt_measurement *measurement, struct mt_measure_registry *registry,
                       const struct mt_measure_os *os, struct mt_error *error)
{
    struct mt_resident resident;
    int result = mt_resident_read(os, &resident, error);
    if (result != MT_OK)
        return result;
    hand_round(registry, resident.mark_bytes);
    result = mt_resident_reset_mark(os, error);
    if (result == MT_OK)
        result = mt_resident_read(os, &resident, error);
    if (result != MT_OK)
        return result;
    measurement->baseline_bytes = resident.now_bytes;
    measurement->peak_bytes = resident.mark_bytes;
    return MT_OK;
}

static int begin_sampled(struct mt_measurement *measurement, const struct mt_measure_os *os,
                         struct mt_error *error)
{
    int result = mt_resident_sample(os, &measurement->baseline_bytes, error);
    if (result == MT_OK)
        measurement->peak_bytes = measurement->baseline_bytes;
    return result;
}

static void enter(struct mt_measure_registry *registry, struct mt_measurement *measurement)
{
    measurement->overlapped = registry->first != NULL;
    for (struct mt_measurement *m = registry->first; m; m = m->next)
        m->overlapped = 1;
    measurement->next = registry->first;
    registry->first = measurement;
}

int mt_measurement_begin(struct mt_measurement *measurement, struct mt_measure_registry *registry,
                         const struct mt_measure_os *os, int exact, struct mt_error *error)
{
    *measurement = (struct mt_measurement){.thread = pthread_self(), .exact = exact};
    pthread_mutex_lock(&registry->lock);
    struct mt_measure_registry *locked __attribute__((cleanup(unlock))) = registry;
    int result =
        exact ? begin_exact(measurement, locked, os, error) : begin_sampled(measurement, os, error);
    if (result == MT_OK)
        enter(locked, measurement);
    return result;
}

static void leave(struct mt_measure_registry *registry, const struct mt_measurement *measurement)
{
    struct mt_measurement **link = &registry->first;
    while (*link && *link != measurement)
        link = &(*link)->next;
    if (*link)
        *link = measurement->next;
}

static int read_after(struct mt_measurement *measurement, struct mt_measure_registry *registry,
                      const struct mt_measure_os *os, struct mt_error *error)
{
    if (!measurement->exact)
        return mt_resident_sample(os, &measurement->after_bytes, error);
    struct mt_resident resident;
    int result = mt_resident_read(os, &resident, error);
    if (result != MT_OK)
        return result;
    hand_round(registry, resident.mark_bytes);
    measurement->after_bytes = resident.now_bytes;
    return MT_OK;
}

int mt_measurement_end(struct mt_measurement *measurement, struct mt_measure_registry *registry,
                       const struct mt_measure_os *os, struct mt_error *error)
{
    pthread_mutex_lock(&registry->lock);
    struct mt_measure_registry *locked __attribute__((cleanup(unlock))) = registry;
    int result = read_after(measurement, locked, os, error);
    leave(locked, measurement);
    return result;
}

void mt_measure_exclude(struct mt_measure_registry *registry, uint64_t work_ns)
{
    pthread_mutex_lock(&registry->lock);
    for (struct mt_measurement *m = registry->first; m; m = m->next)
        if (pthread_equal(m->thread, pthread_self()))
            m->excluded_ns += work_ns;
    pthread_mutex_unlock(&registry->lock);
}
