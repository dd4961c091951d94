/* SPDX-License-Identifier: MIT */
/* What devices held at a time, from when their blocks and pools came and went, and what the driver
 * said. */
#include <memtally/error_code.h>
#include <memtally/units.h>
#include <stdlib.h>
#include <string.h>

#include "tally/devices.h"

/* A change of what a process holds, or what the driver said. */
struct step {
    uint64_t ns;
    uint64_t order;
    int64_t change;        /* of what is allocated */
    int64_t pooled;        /* of that, in pools */
    int64_t reserved;      /* by pools */
    int64_t graphs;        /* of that, by the one of graphs */
    uint64_t used_bytes;   /* MT_UNKNOWN: not said here */
    uint64_t others_bytes; /* likewise */
    uint64_t seen_bytes;   /* likewise */
};

/* Nothing changes and nothing is said. */
#define NO_STEP .used_bytes = MT_UNKNOWN, .others_bytes = MT_UNKNOWN, .seen_bytes = MT_UNKNOWN

static int by_time(const void *a, const void *b)
{
    const struct step *one = a;
    const struct step *other = b;
    if (one->ns != other->ns)
        return one->ns < other->ns ? -1 : 1;
    if (one->order != other->order)
        return one->order < other->order ? -1 : 1;
    return one->change > other->change ? -1 : one->change < other->change;
}

static void add_blocks(const struct mt_devices *devices, size_t place, struct step *steps,
                       size_t *n)
{
    for (size_t i = 0; i < devices->n_blocks; i++) {
        const struct mt_device_block *block = &devices->blocks[i];
        int64_t pooled = block->kind == MT_DEVICE_POOLED ? (int64_t)block->bytes : 0;
        if (!mt_device_block_counts(block) || block->place != place)
            continue;
        struct step begin = {.ns = block->begin_ns,
                             .order = block->order,
                             .change = (int64_t)block->bytes,
                             .pooled = pooled,
                             NO_STEP};
        struct step end = begin;
        end.ns = block->end_ns;
        end.change = -begin.change;
        end.pooled = -pooled;
        steps[(*n)++] = begin;
        if (block->end_ns != UINT64_MAX)
            steps[(*n)++] = end;
    }
}

/* A pool's events in one process are in order. Returns 0 or MT_ENOMEM. */
static int add_pools(const struct mt_devices *devices, size_t place, struct step *steps, size_t *n)
{
    struct mt_table last;
    int result = 0;
    mt_table_init(&last);
    for (size_t i = 0; i < devices->n_pools && result == 0; i++) {
        const struct mt_device_pool *pool = &devices->pools[i];
        uint64_t key = (pool->pool * 0x9e3779b97f4a7c15u ^ pool->pid) >> 1;
        uint64_t before = 0;
        if (pool->place != place)
            continue;
        mt_table_get(&last, key, &before);
        steps[(*n)++] = (struct step){.ns = pool->ns,
                                      .order = pool->order,
                                      .reserved = (int64_t)(pool->reserved_bytes - before),
                                      .graphs = pool->pool == MT_DEVICE_POOL_OF_GRAPHS
                                                    ? (int64_t)(pool->reserved_bytes - before)
                                                    : 0,
                                      NO_STEP};
        result = mt_table_set(&last, key, pool->reserved_bytes);
    }
    mt_table_finish(&last);
    return result;
}

/* What the driver said, and what was seen from outside. */
static void add_said(const struct mt_devices *devices, size_t place, struct step *steps, size_t *n)
{
    for (size_t i = 0; i < devices->n_uses; i++)
        if (devices->uses[i].place == place)
            steps[(*n)++] = (struct step){.ns = devices->uses[i].ns,
                                          .order = devices->uses[i].order,
                                          .used_bytes = devices->uses[i].used_bytes,
                                          .others_bytes = MT_UNKNOWN,
                                          .seen_bytes = MT_UNKNOWN};
    for (size_t i = 0; i < devices->n_others; i++)
        if (devices->others[i].place == place)
            steps[(*n)++] = (struct step){.ns = devices->others[i].ns,
                                          .used_bytes = MT_UNKNOWN,
                                          .others_bytes = devices->others[i].bytes,
                                          .seen_bytes = MT_UNKNOWN};
    for (size_t i = 0; i < devices->n_seen; i++)
        if (devices->seen[i].place == place)
            steps[(*n)++] = (struct step){.ns = devices->seen[i].ns,
                                          .used_bytes = MT_UNKNOWN,
                                          .others_bytes = MT_UNKNOWN,
                                          .seen_bytes = devices->seen[i].bytes};
}

static struct step *steps_of(const struct mt_devices *devices, size_t place, size_t *n)
{
    size_t most = 2 * devices->n_blocks + devices->n_uses + devices->n_pools + devices->n_others +
                  devices->n_seen + 1;
    struct step *steps = calloc(most, sizeof *steps);
    *n = 0;
    if (!steps)
        return NULL;
    add_blocks(devices, place, steps, n);
    if (add_pools(devices, place, steps, n) < 0) {
        free(steps);
        return NULL;
    }
    add_said(devices, place, steps, n);
    qsort(steps, *n, sizeof *steps, by_time);
    return steps;
}

/* ---- moments ---- */

static void apply(struct mt_device_moment *now, const struct step *step)
{
    now->ns = step->ns;
    now->order = step->order;
    now->allocated_bytes += (uint64_t)step->change;
    now->pooled_bytes += (uint64_t)step->pooled;
    now->reserved_bytes += (uint64_t)step->reserved;
    now->graph_bytes += (uint64_t)step->graphs;
    if (step->used_bytes != MT_UNKNOWN)
        now->used_bytes = step->used_bytes;
    if (step->others_bytes != MT_UNKNOWN)
        now->others_bytes = step->others_bytes;
    if (step->seen_bytes != MT_UNKNOWN)
        now->seen_bytes = step->seen_bytes;
}

/* What others use is first known some time after the beginning: it holds from there on. */
static struct mt_device_moment first_moment(const struct step *steps, size_t n)
{
    struct mt_device_moment first = {
        .used_bytes = MT_UNKNOWN, .others_bytes = MT_UNKNOWN, .seen_bytes = MT_UNKNOWN};
    for (size_t i = 0; i < n && first.others_bytes == MT_UNKNOWN; i++)
        first.others_bytes = steps[i].others_bytes;
    return first;
}

/* An allocation of a pool is noted after the pool has been asked. */
uint64_t mt_device_reserved(const struct mt_device_moment *moment)
{
    uint64_t others = moment->reserved_bytes - moment->graph_bytes;
    return moment->graph_bytes + (others > moment->pooled_bytes ? others : moment->pooled_bytes);
}

/* Others may use more by now than when they were looked at, and less: what was allocated is not
 * theirs. */
uint64_t mt_device_taken(const struct mt_device_moment *moment)
{
    uint64_t used = moment->used_bytes;
    uint64_t least = moment->allocated_bytes - moment->pooled_bytes + mt_device_reserved(moment);
    if (used == MT_UNKNOWN || moment->others_bytes == MT_UNKNOWN)
        return used;
    uint64_t taken = used > moment->others_bytes ? used - moment->others_bytes : 0;
    return taken > least ? taken : least < used ? least : used;
}

uint64_t mt_device_others(const struct mt_device_moment *moment)
{
    if (moment->seen_bytes != MT_UNKNOWN && moment->used_bytes == MT_UNKNOWN)
        return moment->others_bytes;
    if (moment->used_bytes == MT_UNKNOWN || moment->others_bytes == MT_UNKNOWN)
        return MT_UNKNOWN;
    return moment->used_bytes - mt_device_taken(moment);
}

/* What processes are known to have: what was allocated, and what was seen of those that nobody
 * recorded. */
static uint64_t known_bytes(const struct mt_device_moment *moment)
{
    return moment->allocated_bytes + (moment->seen_bytes == MT_UNKNOWN ? 0 : moment->seen_bytes);
}

int mt_device_peak(const struct mt_devices *devices, size_t place, struct mt_device_moment *moment)
{
    size_t n;
    struct step *steps = steps_of(devices, place, &n);
    int is_told = 0;
    if (!steps)
        return MT_ENOMEM;
    struct mt_device_moment now = first_moment(steps, n);
    *moment = now;
    for (size_t i = 0; i < n; i++)
        is_told |= steps[i].used_bytes != MT_UNKNOWN;
    for (size_t i = 0; i < n; i++) {
        apply(&now, &steps[i]);
        int is_more = is_told ? steps[i].used_bytes != MT_UNKNOWN &&
                                    (moment->used_bytes == MT_UNKNOWN ||
                                     mt_device_taken(&now) > mt_device_taken(moment))
                              : known_bytes(&now) > known_bytes(moment) ||
                                    (moment->seen_bytes == MT_UNKNOWN && now.seen_bytes == 0);
        if (is_more)
            *moment = now;
    }
    free(steps);
    return 0;
}

int mt_device_at(const struct mt_devices *devices, size_t place, uint64_t ns,
                 struct mt_device_moment *moment)
{
    size_t n;
    struct step *steps = steps_of(devices, place, &n);
    if (!steps)
        return MT_ENOMEM;
    struct mt_device_moment now = first_moment(steps, n);
    *moment = now;
    for (size_t i = 0; i < n && steps[i].ns <= ns; i++)
        apply(&now, &steps[i]);
    *moment = now;
    moment->ns = ns;
    moment->order = UINT64_MAX;
    free(steps);
    return 0;
}

int mt_device_half_full(const struct mt_devices *devices, size_t place, uint64_t ns,
                        uint64_t *half_ns)
{
    size_t n;
    struct step *steps = steps_of(devices, place, &n);
    *half_ns = 0;
    if (!steps)
        return MT_ENOMEM;
    struct mt_device_moment now = first_moment(steps, n);
    struct mt_device_moment then = now;
    for (size_t i = 0; i < n && steps[i].ns <= ns; i++)
        apply(&then, &steps[i]);
    for (size_t i = 0; i < n && steps[i].ns <= ns; i++) {
        apply(&now, &steps[i]);
        if (now.allocated_bytes <= then.allocated_bytes / 2)
            *half_ns = now.ns;
    }
    free(steps);
    return 0;
}
