/* SPDX-License-Identifier: MIT */
/* Orders of programs that share memory (include/memtally/schedule.h).
 *
 * The bound. While a program runs that needs a share s of a place, it takes s of the place's time;
 * so do functions of s whose sum over programs that fit together never exceeds 1 (dual feasible
 * functions of bin packing): what needs more than 1 - p fills the place where less than p counts as
 * nothing; and shares rounded down to (k+1)-ths, which count as k-ths. */
#include <memtally/schedule.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define GOOD_RATIO    1.10
#define TRIES         20000u /* of changed orders, while none is good enough */
#define STEPS_MAX     400000000u
#define SHARES        12u
#define STEPS_OF_SETS 20000u

struct planner {
    const struct mt_schedule_item *items;
    size_t n;
    const struct mt_schedule_room *room;
    double *ends;    /* when an item ends; 0: it has not started */
    size_t *running; /* numbers of items */
    size_t *waiting;
    size_t *any_of; /* the place that an item was given */
    double *keys;
};

/* ---- following an order ---- */

static int place_for(const struct mt_schedule_item *item, const struct mt_schedule_room *room,
                     const uint64_t *used, size_t *any)
{
    for (size_t k = 0; k < room->n_places; k++)
        if (item->bytes[k] > room->bytes[k] - used[k])
            return 0;
    *any = 0;
    if (!item->any_bytes)
        return 1;
    for (size_t k = room->first_any; k < room->n_places; k++)
        if (item->bytes[k] + item->any_bytes <= room->bytes[k] - used[k]) {
            *any = k;
            return 1;
        }
    return 0;
}

static void occupy(const struct mt_schedule_item *item, size_t n_places, size_t any, uint64_t *used)
{
    for (size_t k = 0; k < n_places; k++)
        used[k] += item->bytes[k];
    used[any] += item->any_bytes;
}

static void leave(const struct mt_schedule_item *item, size_t n_places, size_t any, uint64_t *used)
{
    for (size_t k = 0; k < n_places; k++)
        used[k] -= item->bytes[k];
    used[any] -= item->any_bytes;
}

static size_t start_what_fits(struct planner *planner, size_t *n_waiting, size_t n_running,
                              double now, uint64_t *used)
{
    const struct mt_schedule_room *room = planner->room;
    size_t kept = 0;
    for (size_t i = 0; i < *n_waiting; i++) {
        size_t number = planner->waiting[i];
        const struct mt_schedule_item *item = &planner->items[number];
        size_t any;
        if ((room->n_jobs && n_running >= room->n_jobs) || !place_for(item, room, used, &any)) {
            planner->waiting[kept++] = number;
            continue;
        }
        occupy(item, room->n_places, any, used);
        planner->any_of[number] = any;
        planner->ends[number] = now + item->seconds;
        planner->running[n_running++] = number;
    }
    *n_waiting = kept;
    return n_running;
}

/* Ends the first of those that run, and gives its room back. Returns when that is. */
static double end_first(struct planner *planner, size_t *n_running, uint64_t *used)
{
    size_t first = 0;
    for (size_t i = 1; i < *n_running; i++)
        if (planner->ends[planner->running[i]] < planner->ends[planner->running[first]])
            first = i;
    size_t number = planner->running[first];
    leave(&planner->items[number], planner->room->n_places, planner->any_of[number], used);
    planner->running[first] = planner->running[--*n_running];
    return planner->ends[number];
}

static double follow(struct planner *planner, const size_t *order)
{
    uint64_t used[MT_SCHEDULE_PLACES] = {0};
    size_t n_waiting = planner->n;
    size_t n_running = 0;
    double now = 0;
    memcpy(planner->waiting, order, planner->n * sizeof *order);
    while (n_waiting || n_running) {
        n_running = start_what_fits(planner, &n_waiting, n_running, now, used);
        now = end_first(planner, &n_running, used);
    }
    return now;
}

/* ---- sorting ---- */

struct keyed {
    double key;
    size_t number;
};

static int by_key(const void *left, const void *right)
{
    const struct keyed *a = left;
    const struct keyed *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int sort_by_keys(const struct planner *planner, size_t *order)
{
    struct keyed *keyed = malloc(planner->n * sizeof *keyed);
    if (!keyed)
        return MT_ENOMEM;
    for (size_t i = 0; i < planner->n; i++)
        keyed[i] = (struct keyed){planner->keys[i], i};
    qsort(keyed, planner->n, sizeof *keyed, by_key);
    for (size_t i = 0; i < planner->n; i++)
        order[i] = keyed[i].number;
    free(keyed);
    return 0;
}

/* ---- the bound ---- */

static double part_above(double share, double p)
{
    return share > 1 - p ? 1 : share < p ? 0 : share;
}

static double part_rounded(double share, unsigned k)
{
    double parts = share * (k + 1);
    double whole = (double)(uint64_t)parts;
    return parts - whole < 1e-9 ? share : whole / k;
}

static double part_of(double share, unsigned f)
{
    return f == 0        ? share
           : f <= SHARES ? part_above(share, 0.5 * f / SHARES)
                         : part_rounded(share, f - SHARES);
}

static double bound_of_place(const struct planner *planner, size_t k)
{
    double bound = 0;
    for (unsigned f = 0; f <= 2 * SHARES; f++) {
        double sum = 0;
        for (size_t i = 0; i < planner->n; i++) {
            double share = (double)planner->items[i].bytes[k] / (double)planner->room->bytes[k];
            double part = part_of(share, f);
            sum += part * planner->items[i].seconds;
        }
        bound = sum > bound ? sum : bound;
    }
    return bound;
}

/* Each of places that are alike holds parts of at most 1, and a smaller one no more than the
 * largest. */
static double bound_of_any(const struct planner *planner)
{
    const struct mt_schedule_room *room = planner->room;
    double largest = 0;
    double all = 0;
    double bound = 0;
    for (size_t k = room->first_any; k < room->n_places; k++) {
        largest = (double)room->bytes[k] > largest ? (double)room->bytes[k] : largest;
        all += (double)room->bytes[k];
    }
    for (unsigned f = 0; all > 0 && f <= 2 * SHARES; f++) {
        double sum = 0;
        double holds = f == 0 ? all / largest : (double)(room->n_places - room->first_any);
        for (size_t i = 0; i < planner->n; i++) {
            const struct mt_schedule_item *item = &planner->items[i];
            double part = part_of((double)item->any_bytes / largest, f);
            for (size_t k = room->first_any; k < room->n_places; k++)
                part += part_of((double)item->bytes[k] / largest, f);
            sum += part * item->seconds / holds;
        }
        bound = sum > bound ? sum : bound;
    }
    return bound;
}

/* Puts the longest time first. */
static int longer(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return a > b ? -1 : a < b;
}

/* At most m of n run at a time, so that k + 1 of the m·k + 1 longest run one after the other. */
static double bound_of_turns(double *times, size_t n, size_t m)
{
    double bound = 0;
    qsort(times, n, sizeof *times, longer);
    for (size_t k = 0; k * m < n; k++) {
        double sum = 0;
        for (size_t i = k * m - k; k > 0 && i <= k * m; i++)
            sum += times[i];
        bound = sum > bound ? sum : bound;
    }
    return bound;
}

/* At most m of those that need more than an (m+1)-th of a place run at a time, and m on each of
 * places that are alike. */
static double bound_by_turns(const struct planner *planner, size_t k, int of_any)
{
    const struct mt_schedule_room *room = planner->room;
    uint64_t most = room->bytes[k];
    double bound = 0;
    for (size_t i = k; of_any && i < room->n_places; i++)
        most = room->bytes[i] > most ? room->bytes[i] : most;
    for (size_t m = 1; m <= SHARES; m++) {
        size_t n = 0;
        for (size_t i = 0; i < planner->n; i++) {
            const struct mt_schedule_item *item = &planner->items[i];
            uint64_t bytes = of_any ? item->any_bytes : item->bytes[k];
            if (bytes > most / (m + 1))
                planner->keys[n++] = item->seconds;
        }
        double turns = bound_of_turns(planner->keys, n, of_any ? m * (room->n_places - k) : m);
        bound = turns > bound ? turns : bound;
    }
    return bound;
}

static int exclude(const struct planner *planner, size_t a, size_t b)
{
    const struct mt_schedule_item *one = &planner->items[a];
    const struct mt_schedule_item *other = &planner->items[b];
    const struct mt_schedule_room *room = planner->room;
    for (size_t k = 0; k < room->n_places; k++)
        if (one->bytes[k] + other->bytes[k] > room->bytes[k])
            return 1;
    return room->first_any + 1 == room->n_places && one->bytes[room->first_any] + one->any_bytes +
                                                            other->bytes[room->first_any] +
                                                            other->any_bytes >
                                                        room->bytes[room->first_any];
}

/* Those of which no two fit together run one after the other: the longest such set that a search of
 * so many steps finds. `order` has the longest first. */
struct clique {
    const struct planner *planner;
    const size_t *order;
    size_t *in;
    double *left; /* seconds of order[i..n) */
    double best;
    unsigned steps;
};

static void grow(struct clique *clique, size_t next, size_t n_in, double sum)
{
    const struct planner *planner = clique->planner;
    clique->best = sum > clique->best ? sum : clique->best;
    for (size_t i = next; i < planner->n && sum + clique->left[i] > clique->best; i++) {
        size_t k = 0;
        while (k < n_in && exclude(planner, clique->order[i], clique->in[k]))
            k++;
        if (k < n_in || clique->steps == 0)
            continue;
        clique->steps--;
        clique->in[n_in] = clique->order[i];
        grow(clique, i + 1, n_in + 1, sum + planner->items[clique->order[i]].seconds);
    }
}

static double bound_of_exclusion(struct planner *planner)
{
    struct clique clique = {.planner = planner,
                            .order = planner->waiting,
                            .in = planner->running,
                            .left = planner->ends,
                            .steps = STEPS_OF_SETS};
    for (size_t i = 0; i < planner->n; i++)
        planner->keys[i] = -planner->items[i].seconds;
    if (sort_by_keys(planner, planner->waiting) < 0)
        return 0;
    double left = 0;
    for (size_t i = planner->n; i > 0; i--) {
        left += planner->items[planner->waiting[i - 1]].seconds;
        planner->ends[i - 1] = left;
    }
    grow(&clique, 0, 0, 0);
    return clique.best;
}

static double bound_of_all(struct planner *planner)
{
    double longest = 0;
    double sum = 0;
    for (size_t i = 0; i < planner->n; i++) {
        double seconds = planner->items[i].seconds;
        longest = seconds > longest ? seconds : longest;
        sum += seconds;
    }
    double bound = longest;
    for (size_t i = 0; i < planner->n; i++)
        planner->keys[i] = planner->items[i].seconds;
    if (planner->room->n_jobs) {
        double turns = bound_of_turns(planner->keys, planner->n, planner->room->n_jobs);
        double shared = sum / (double)planner->room->n_jobs;
        bound = turns > bound ? turns : bound;
        bound = shared > bound ? shared : bound;
    }
    for (size_t k = 0; k < planner->room->n_places; k++) {
        double of_place = planner->room->bytes[k] ? bound_of_place(planner, k) : 0;
        bound = of_place > bound ? of_place : bound;
    }
    for (size_t k = 0; k < planner->room->n_places; k++) {
        double turns = bound_by_turns(planner, k, 0);
        bound = turns > bound ? turns : bound;
    }
    if (planner->room->first_any < planner->room->n_places) {
        double turns = bound_by_turns(planner, planner->room->first_any, 1);
        bound = turns > bound ? turns : bound;
    }
    double excluded = bound_of_exclusion(planner);
    bound = excluded > bound ? excluded : bound;
    double of_any = bound_of_any(planner);
    return of_any > bound ? of_any : bound;
}

/* ---- orders ---- */

/* The largest share that an item has of any place. */
static double share_of(const struct planner *planner, size_t i)
{
    const struct mt_schedule_item *item = &planner->items[i];
    const struct mt_schedule_room *room = planner->room;
    double share = 0;
    for (size_t k = 0; k < room->n_places; k++) {
        uint64_t bytes = item->bytes[k];
        if (k >= room->first_any)
            bytes += item->any_bytes;
        double of_place = room->bytes[k] ? (double)bytes / (double)room->bytes[k] : 0;
        share = of_place > share ? of_place : share;
    }
    return share;
}

/* Powers of share and time by hand, which need no mathematics library: 0, 1 or 2 of each. */
static void set_keys(const struct planner *planner, int share_power, int time_power,
                     int large_apart)
{
    for (size_t i = 0; i < planner->n; i++) {
        double share = share_of(planner, i);
        double key = 1;
        for (int k = 0; k < share_power; k++)
            key *= share + 1e-6;
        for (int k = 0; k < time_power; k++)
            key *= planner->items[i].seconds;
        /* What fits beside nothing of its kind goes before all that could fill its gaps. */
        planner->keys[i] = -key - (large_apart && share > 0.5 ? 1e30 : 0);
    }
}

struct best {
    size_t *order;
    size_t *tried;
    double seconds;
    double good_seconds;
};

static void try_order(struct planner *planner, struct best *best)
{
    double seconds = follow(planner, best->tried);
    if (seconds <= best->seconds) {
        best->seconds = seconds;
        memcpy(best->order, best->tried, planner->n * sizeof *best->order);
    }
}

static int try_rules(struct planner *planner, struct best *best)
{
    for (int apart = 0; apart <= 1; apart++)
        for (int share = 0; share <= 2; share++)
            for (int time = 0; time <= 2; time++) {
                if (share + time == 0 || best->seconds <= best->good_seconds)
                    continue;
                set_keys(planner, share, time, apart);
                if (sort_by_keys(planner, best->tried) < 0)
                    return MT_ENOMEM;
                try_order(planner, best);
            }
    return 0;
}

/* ---- orders that keep places even ---- */

/* What is left to do at each place, as time that all of it is taken; of places that are alike, one
 * figure at the first. */
static size_t figure_of(const struct mt_schedule_room *room, size_t k)
{
    return k > room->first_any ? room->first_any : k;
}

static void add_work(const struct planner *planner, size_t i, double times, double *work)
{
    const struct mt_schedule_item *item = &planner->items[i];
    const struct mt_schedule_room *room = planner->room;
    double all = 0;
    for (size_t k = room->first_any; k < room->n_places; k++)
        all += (double)room->bytes[k];
    for (size_t k = 0; k < room->n_places; k++) {
        double of = k >= room->first_any ? all : (double)room->bytes[k];
        work[figure_of(room, k)] += of > 0 ? times * (double)item->bytes[k] / of : 0;
    }
    if (item->any_bytes)
        work[room->first_any] += times * (double)item->any_bytes / all;
}

/* What an item takes of the places for which most is left to do counts most. */
static double worth(const struct planner *planner, size_t i, const double *work, int power,
                    int counts_time)
{
    double shares[MT_SCHEDULE_PLACES] = {0};
    double most = 1e-9;
    double sum = 0;
    add_work(planner, i, 1, shares);
    for (size_t k = 0; k < planner->room->n_places; k++)
        most = work[k] > most ? work[k] : most;
    for (size_t k = 0; k < planner->room->n_places; k++) {
        double weight = work[k] / most;
        sum += shares[k] * (power > 1 ? weight * weight * weight * weight : weight);
    }
    return sum * (counts_time ? planner->items[i].seconds : 1);
}

/* The worthiest of those that have not started and fit, or n where none is. */
static size_t worthiest(struct planner *planner, const uint64_t *used, const double *work,
                        int power, int counts_time)
{
    size_t chosen = planner->n;
    double most = -1;
    for (size_t i = 0; i < planner->n; i++) {
        size_t any;
        if (planner->ends[i] >= 0 || !place_for(&planner->items[i], planner->room, used, &any))
            continue;
        double value = worth(planner, i, work, power, counts_time);
        if (value > most) {
            most = value;
            chosen = i;
            planner->any_of[i] = any;
        }
    }
    return chosen;
}

/* Writes the order in which items start where the worthiest that fits is started each time. */
static void order_by_worth(struct planner *planner, int power, int counts_time, size_t *order)
{
    uint64_t used[MT_SCHEDULE_PLACES] = {0};
    double work[MT_SCHEDULE_PLACES] = {0};
    const struct mt_schedule_room *room = planner->room;
    size_t n_running = 0;
    double now = 0;
    for (size_t i = 0; i < planner->n; i++) {
        planner->ends[i] = -1; /* not started */
        add_work(planner, i, planner->items[i].seconds, work);
    }
    for (size_t n_started = 0; n_started < planner->n;) {
        int is_full = room->n_jobs && n_running >= room->n_jobs;
        size_t chosen = is_full ? planner->n : worthiest(planner, used, work, power, counts_time);
        if (chosen == planner->n) {
            now = end_first(planner, &n_running, used);
            continue;
        }
        occupy(&planner->items[chosen], room->n_places, planner->any_of[chosen], used);
        add_work(planner, chosen, -planner->items[chosen].seconds, work);
        planner->ends[chosen] = now + planner->items[chosen].seconds;
        planner->running[n_running++] = chosen;
        order[n_started++] = chosen;
    }
}

/* Moves one item of the best order to the front of another, by numbers that are always the same. */
static void try_changes(struct planner *planner, struct best *best)
{
    uint64_t state = 1;
    uint64_t steps = (uint64_t)planner->n * planner->n;
    uint64_t tries = STEPS_MAX / steps < TRIES ? STEPS_MAX / steps : TRIES;
    for (uint64_t i = 0; i < tries && best->seconds > best->good_seconds; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t from = (size_t)((state >> 33) % planner->n);
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t to = (size_t)((state >> 33) % planner->n);
        memcpy(best->tried, best->order, planner->n * sizeof *best->tried);
        size_t number = best->tried[from];
        if (from < to)
            memmove(best->tried + from, best->tried + from + 1, (to - from) * sizeof number);
        else
            memmove(best->tried + to + 1, best->tried + to, (from - to) * sizeof number);
        best->tried[to] = number;
        try_order(planner, best);
    }
}

static void try_worth(struct planner *planner, struct best *best)
{
    for (int way = 0; way < 4 && best->seconds > best->good_seconds; way++) {
        order_by_worth(planner, way & 1 ? 4 : 1, way & 2, best->tried);
        try_order(planner, best);
    }
}

static int check(const struct mt_schedule_item *items, size_t n,
                 const struct mt_schedule_room *room, struct mt_error *error)
{
    const uint64_t none[MT_SCHEDULE_PLACES] = {0};
    size_t any;
    if (n == 0 || room->n_places == 0 || room->n_places > MT_SCHEDULE_PLACES)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "a schedule needs items and 1 to %d places",
                       MT_SCHEDULE_PLACES);
    for (size_t i = 0; i < n; i++)
        if (!(items[i].seconds > 0) || !place_for(&items[i], room, none, &any))
            return mt_fail(error, MT_EARG, MT_NO_OFFSET, "item %zu does not fit, or runs no time",
                           i);
    return 0;
}

static void finish(struct planner *planner)
{
    free(planner->ends);
    free(planner->running);
    free(planner->waiting);
    free(planner->any_of);
    free(planner->keys);
}

static int init(struct planner *planner, const struct mt_schedule_item *items, size_t n,
                const struct mt_schedule_room *room, struct mt_error *error)
{
    int status = check(items, n, room, error);
    if (status < 0)
        return status;
    *planner = (struct planner){
        .items = items,
        .n = n,
        .room = room,
        .ends = calloc(n, sizeof(double)),
        .running = calloc(n, sizeof(size_t)),
        .waiting = calloc(n, sizeof(size_t)),
        .any_of = calloc(n, sizeof(size_t)),
        .keys = calloc(n, sizeof(double)),
    };
    if (planner->ends && planner->running && planner->waiting && planner->any_of && planner->keys)
        return 0;
    finish(planner);
    return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a schedule");
}

int mt_schedule_time(const struct mt_schedule_item *items, size_t n,
                     const struct mt_schedule_room *room, const size_t *order, double *seconds,
                     struct mt_error *error)
{
    struct planner planner;
    int status = init(&planner, items, n, room, error);
    if (status < 0)
        return status;
    *seconds = follow(&planner, order);
    finish(&planner);
    return 0;
}

static int plan(struct planner *planner, size_t *order, struct best *best,
                struct mt_schedule *schedule)
{
    for (size_t i = 0; i < planner->n; i++)
        planner->keys[i] = share_of(planner, i);
    if (sort_by_keys(planner, best->order) < 0)
        return MT_ENOMEM;
    double small_first = follow(planner, best->order);
    struct mt_schedule found = {.least_seconds = bound_of_all(planner)};
    best->seconds = small_first;
    best->good_seconds = found.least_seconds * GOOD_RATIO;
    if (best->seconds > best->good_seconds && try_rules(planner, best) < 0)
        return MT_ENOMEM;
    try_worth(planner, best);
    try_changes(planner, best);
    found.seconds = best->seconds;
    found.is_small_first = best->seconds >= small_first;
    memcpy(order, best->order, planner->n * sizeof *order);
    *schedule = found;
    return 0;
}

int mt_schedule_plan(const struct mt_schedule_item *items, size_t n,
                     const struct mt_schedule_room *room, size_t *order,
                     struct mt_schedule *schedule, struct mt_error *error)
{
    struct planner planner;
    int status = init(&planner, items, n, room, error);
    if (status < 0)
        return status;
    struct best best = {.order = calloc(n, sizeof(size_t)), .tried = calloc(n, sizeof(size_t))};
    if (!best.order || !best.tried || plan(&planner, order, &best, schedule) < 0)
        status = mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a schedule");
    free(best.order);
    free(best.tried);
    finish(&planner);
    return status;
}
