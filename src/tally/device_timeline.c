/* SPDX-License-Identifier: MIT */
/* What was allocated on each device over time. */
#include <memtally/error_code.h>
#include <memtally/recording.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/out_of_memory.h"
#include "tally/image.h"
#include "tally/tree.h"

/* An allocation comes, or goes. */
struct change {
    uint64_t ns;
    uint64_t order;
    uint64_t bytes; /* modulo 2^64 */
};

static int by_time(const void *a, const void *b)
{
    const struct change *x = a;
    const struct change *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static size_t collect(const struct mt_devices *devices, size_t place, struct change *changes)
{
    size_t n = 0;
    for (size_t i = 0; i < devices->n_blocks; i++) {
        const struct mt_device_block *block = &devices->blocks[i];
        if (block->place != place || !mt_device_block_counts(block))
            continue;
        changes[n++] = (struct change){block->begin_ns, 2 * i, block->bytes};
        if (block->end_ns != UINT64_MAX)
            changes[n++] = (struct change){block->end_ns, 2 * i + 1, 0 - block->bytes};
    }
    qsort(changes, n, sizeof *changes, by_time);
    return n;
}

/* One point for each moment at which something changed. */
static size_t sum_up(const struct mt_recording *recording, const struct change *changes, size_t n,
                     struct mt_timeline_point *points)
{
    size_t n_points = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += changes[i].bytes;
        if (i + 1 < n && changes[i + 1].ns == changes[i].ns)
            continue;
        points[n_points++] =
            (struct mt_timeline_point){mt_recording_time(recording, changes[i].ns), bytes};
    }
    return n_points;
}

static int fill(const struct mt_recording *recording, size_t place,
                struct mt_device_timeline *timeline)
{
    const struct mt_devices *devices = &recording->devices;
    struct change *changes = calloc(2 * devices->n_blocks + 1, sizeof *changes);
    struct mt_timeline_point *points = calloc(2 * devices->n_blocks + 1, sizeof *points);
    if (!changes || !points) {
        free(changes);
        free(points);
        return MT_ENOMEM;
    }
    size_t n = collect(devices, place, changes);
    timeline->n_points = sum_up(recording, changes, n, points);
    timeline->points = points;
    free(changes);
    snprintf(timeline->place, sizeof timeline->place, "gpu:%.50s", devices->places[place].uuid);
    return 0;
}

void mt_device_timelines_destroy(struct mt_device_timeline *timelines, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(timelines[i].points);
    free(timelines);
}

int mt_recording_device_timelines(const struct mt_recording *recording,
                                  struct mt_device_timeline **timelines, size_t *n,
                                  struct mt_error *error)
{
    size_t n_places = recording->devices.n_places;
    struct mt_device_timeline *made = calloc(n_places + 1, sizeof *made);
    int result = made ? 0 : MT_ENOMEM;
    for (size_t i = 0; i < n_places && result == 0; i++)
        result = fill(recording, i, &made[i]);
    if (result < 0) {
        mt_device_timelines_destroy(made, made ? n_places : 0);
        return mt_out_of_memory_for(error, recording->path);
    }
    *timelines = made;
    *n = n_places;
    return 0;
}
