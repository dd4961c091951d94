/* SPDX-License-Identifier: MIT */
/* What devices held at a time, from when their blocks, pools and shares came and went. */
#include <memtally/error.h>
#include <memtally/tally.h>
#include <stdlib.h>
#include <string.h>

#include "tally/devices.h"

/* A change of what a process holds, or what the driver said. */
struct step {
    size_t place;
    uint64_t pid;
    uint64_t ns;
    uint64_t order;
    int64_t change;   /* of what is allocated */
    int64_t pooled;   /* of that, in pools */
    int64_t reserved; /* by pools */
    int64_t own;      /* the driver's for a process */
    int unknown;      /* processes of whom that is not known */
    int users;
    uint64_t used_bytes; /* MT_UNKNOWN: not said here */
};

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
        if (!mt_device_block_counts(block) || (place != MT_DEVICE_UNUSED && block->place != place))
            continue;
        struct step begin = {.place = block->place,
                             .pid = block->pid,
                             .ns = block->begin_ns,
                             .order = block->order,
                             .change = (int64_t)block->bytes,
                             .pooled = pooled,
                             .used_bytes = MT_UNKNOWN};
        struct step end = begin;
        end.ns = block->end_ns;
        end.change = -begin.change;
        end.pooled = -pooled;
        steps[(*n)++] = begin;
        if (block->end_ns != UINT64_MAX)
            steps[(*n)++] = end;
    }
}

/* Of one process a pool's events are in order. Returns 0 or MT_ENOMEM. */
static int add_pools(const struct mt_devices *devices, size_t place, struct step *steps, size_t *n)
{
    struct mt_table last;
    int result = 0;
    mt_table_init(&last);
    for (size_t i = 0; i < devices->n_pools && result == 0; i++) {
        const struct mt_device_pool *pool = &devices->pools[i];
        uint64_t key = (pool->pool * 0x9e3779b97f4a7c15u ^ pool->pid) >> 1;
        uint64_t before = 0;
        if (place != MT_DEVICE_UNUSED && pool->place != place)
            continue;
        mt_table_get(&last, key, &before);
        steps[(*n)++] = (struct step){.place = pool->place,
                                      .pid = pool->pid,
                                      .ns = pool->ns,
                                      .order = pool->order,
                                      .reserved = (int64_t)(pool->reserved_bytes - before),
                                      .used_bytes = MT_UNKNOWN};
        result = mt_table_set(&last, key, pool->reserved_bytes);
    }
    mt_table_finish(&last);
    return result;
}

/* ---- the driver's own ---- */

/* Memory that comes or goes is noted as long before or after the driver has it. */
#define IN_FLIGHT_NS 20000000u

static int by_process(const void *a, const void *b)
{
    const struct step *one = a;
    const struct step *other = b;
    if (one->place != other->place)
        return one->place < other->place ? -1 : 1;
    if (one->pid != other->pid)
        return one->pid < other->pid ? -1 : 1;
    return one->ns < other->ns ? -1 : one->ns > other->ns;
}

static int shares_by_process(const void *a, const void *b)
{
    const struct mt_device_share *one = a;
    const struct mt_device_share *other = b;
    if (one->place != other->place)
        return one->place < other->place ? -1 : 1;
    if (one->pid != other->pid)
        return one->pid < other->pid ? -1 : 1;
    return one->ns < other->ns ? -1 : one->ns > other->ns;
}

static int is_of(const struct step *step, const struct mt_device_share *share)
{
    return step->place == share->place && step->pid == share->pid;
}

/* `steps` and shares are in the order of by_process(). A pool counts by what it reserves. */
static void settle(struct mt_devices *devices, const struct step *steps, size_t n)
{
    size_t at = 0;
    int64_t sum = 0;
    for (size_t i = 0; i < devices->n_shares; i++) {
        struct mt_device_share *share = &devices->shares[i];
        struct step here = {.place = share->place, .pid = share->pid};
        if (i == 0 || share[-1].place != share->place || share[-1].pid != share->pid)
            sum = 0;
        while (at < n && by_process(&steps[at], &here) < 0 && !is_of(&steps[at], share))
            at++;
        for (; at < n && is_of(&steps[at], share) && steps[at].ns <= share->ns; at++)
            sum += steps[at].change - steps[at].pooled + steps[at].reserved;
        int is_before =
            at > 0 && is_of(&steps[at - 1], share) && steps[at - 1].ns + IN_FLIGHT_NS > share->ns;
        int is_after =
            at < n && is_of(&steps[at], share) && steps[at].ns < share->until_ns + IN_FLIGHT_NS;
        share->own_bytes = is_before || is_after || sum < 0 || share->bytes < (uint64_t)sum
                               ? MT_UNKNOWN
                               : share->bytes - (uint64_t)sum;
    }
}

int mt_devices_settle(struct mt_devices *devices)
{
    size_t n = 0;
    if (!devices->n_shares)
        return 0;
    struct step *steps = calloc(2 * devices->n_blocks + devices->n_pools + 1, sizeof *steps);
    if (!steps)
        return MT_ENOMEM;
    add_blocks(devices, MT_DEVICE_UNUSED, steps, &n);
    int result = add_pools(devices, MT_DEVICE_UNUSED, steps, &n);
    qsort(steps, n, sizeof *steps, by_process);
    qsort(devices->shares, devices->n_shares, sizeof *devices->shares, shares_by_process);
    settle(devices, steps, n);
    free(steps);
    return result;
}

/* The first share of a process; as many follow as are its own. */
static size_t first_share(const struct mt_devices *devices, const struct mt_device_user *user)
{
    const struct mt_device_share key = {.place = user->place, .pid = user->pid, .ns = 0};
    size_t low = 0;
    size_t high = devices->n_shares;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (shares_by_process(&devices->shares[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What is known first holds from the beginning on. */
static void add_user(const struct mt_devices *devices, const struct mt_device_user *user,
                     struct step *steps, size_t *n, size_t most)
{
    struct step step = {.ns = user->begin_ns, .users = 1, .used_bytes = MT_UNKNOWN};
    uint64_t own = MT_UNKNOWN;
    for (size_t i = first_share(devices, user); i < devices->n_shares; i++) {
        const struct mt_device_share *share = &devices->shares[i];
        if (share->place != user->place || share->pid != user->pid || share->ns > user->end_ns ||
            *n + 2 >= most)
            break;
        if (share->own_bytes == MT_UNKNOWN || share->ns < user->begin_ns)
            continue;
        step.own = (int64_t)(share->own_bytes - (own == MT_UNKNOWN ? 0 : own));
        step.ns = own == MT_UNKNOWN ? user->begin_ns : share->ns;
        step.users = own == MT_UNKNOWN;
        own = share->own_bytes;
        steps[(*n)++] = step;
    }
    int is_known = own != MT_UNKNOWN;
    if (*n + 2 >= most)
        return;
    if (!is_known)
        steps[(*n)++] =
            (struct step){.ns = user->begin_ns, .users = 1, .unknown = 1, .used_bytes = MT_UNKNOWN};
    if (user->end_ns != UINT64_MAX)
        steps[(*n)++] = (struct step){.ns = user->end_ns,
                                      .own = is_known ? -(int64_t)own : 0,
                                      .users = -1,
                                      .unknown = is_known - 1,
                                      .used_bytes = MT_UNKNOWN};
}

static struct step *steps_of(const struct mt_devices *devices, size_t place, size_t *n)
{
    /* Of images of one process id that lie over each other, which no run makes, some are left out.
     */
    size_t most = 2 * devices->n_blocks + devices->n_uses + devices->n_pools +
                  2 * devices->n_users + devices->n_shares + 4;
    struct step *steps = calloc(most, sizeof *steps);
    *n = 0;
    if (!steps)
        return NULL;
    add_blocks(devices, place, steps, n);
    if (add_pools(devices, place, steps, n) < 0) {
        free(steps);
        return NULL;
    }
    for (size_t i = 0; i < devices->n_uses; i++)
        if (devices->uses[i].place == place)
            steps[(*n)++] = (struct step){.ns = devices->uses[i].ns,
                                          .order = devices->uses[i].order,
                                          .used_bytes = devices->uses[i].used_bytes};
    for (size_t i = 0; i < devices->n_users; i++)
        if (devices->users[i].place == place)
            add_user(devices, &devices->users[i], steps, n, most);
    qsort(steps, *n, sizeof *steps, by_time);
    return steps;
}

/* ---- moments ---- */

struct state {
    struct mt_device_moment now;
    uint64_t own_bytes;
    uint64_t n_unknown;
    uint64_t n_users;
};

static void apply(struct state *state, const struct step *step)
{
    struct mt_device_moment *now = &state->now;
    now->ns = step->ns;
    now->order = step->order;
    now->allocated_bytes += (uint64_t)step->change;
    now->pooled_bytes += (uint64_t)step->pooled;
    now->reserved_bytes += (uint64_t)step->reserved;
    state->own_bytes += (uint64_t)step->own;
    state->n_unknown += (uint64_t)(int64_t)step->unknown;
    state->n_users += (uint64_t)(int64_t)step->users;
    now->own_bytes = state->n_unknown || !state->n_users ? MT_UNKNOWN : state->own_bytes;
    if (step->used_bytes != MT_UNKNOWN)
        now->used_bytes = step->used_bytes;
}

uint64_t mt_device_taken(const struct mt_device_moment *moment)
{
    uint64_t reserved = moment->reserved_bytes > moment->pooled_bytes ? moment->reserved_bytes
                                                                      : moment->pooled_bytes;
    if (moment->used_bytes == MT_UNKNOWN || moment->own_bytes == MT_UNKNOWN)
        return moment->used_bytes;
    uint64_t taken = moment->allocated_bytes - moment->pooled_bytes + reserved + moment->own_bytes;
    return taken < moment->used_bytes ? taken : moment->used_bytes;
}

uint64_t mt_device_others(const struct mt_device_moment *moment)
{
    if (moment->used_bytes == MT_UNKNOWN || moment->own_bytes == MT_UNKNOWN)
        return MT_UNKNOWN;
    return moment->used_bytes - mt_device_taken(moment);
}

static const struct state empty = {.now = {.used_bytes = MT_UNKNOWN, .own_bytes = MT_UNKNOWN}};

int mt_device_peak(const struct mt_devices *devices, size_t place, struct mt_device_moment *moment)
{
    size_t n;
    struct step *steps = steps_of(devices, place, &n);
    struct state state = empty;
    int is_told = 0;
    *moment = state.now;
    if (!steps)
        return MT_ENOMEM;
    for (size_t i = 0; i < n; i++)
        is_told |= steps[i].used_bytes != MT_UNKNOWN;
    for (size_t i = 0; i < n; i++) {
        apply(&state, &steps[i]);
        int is_more = is_told ? steps[i].used_bytes != MT_UNKNOWN &&
                                    (moment->used_bytes == MT_UNKNOWN ||
                                     mt_device_taken(&state.now) > mt_device_taken(moment))
                              : state.now.allocated_bytes > moment->allocated_bytes;
        if (is_more)
            *moment = state.now;
    }
    free(steps);
    return 0;
}

int mt_device_at(const struct mt_devices *devices, size_t place, uint64_t ns,
                 struct mt_device_moment *moment)
{
    size_t n;
    struct step *steps = steps_of(devices, place, &n);
    struct state state = empty;
    *moment = state.now;
    if (!steps)
        return MT_ENOMEM;
    for (size_t i = 0; i < n && steps[i].ns <= ns; i++)
        apply(&state, &steps[i]);
    *moment = state.now;
    moment->ns = ns;
    moment->order = UINT64_MAX;
    free(steps);
    return 0;
}
