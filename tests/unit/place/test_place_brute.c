/* SPDX-License-Identifier: MIT */
/* The solver against enumeration, on instances that are small enough to enumerate: every order of
 * devices, every place to cut. */
#include "tests/support/unit.h"

#include <memtally/memtally.h>
#include <stdio.h>
#include <string.h>

enum { INSTANCES = 100000, UNITS_MAX = 7, DEVICES_MAX = 4 };

static uint64_t random_state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

/* What a split comes to. The share of the fullest device is a fraction. */
struct value {
    size_t devices;
    uint64_t used;
    uint64_t capacity;
    uint64_t tokens;
};

/* The best of all splits by one objective. */
struct best {
    const struct mt_place_problem *problem;
    int found;
    struct value value;
};

static int by_devices(const struct value *a, const struct value *b)
{
    return (a->devices > b->devices) - (a->devices < b->devices);
}

static int by_share(const struct value *a, const struct value *b)
{
    uint64_t left = a->used * b->capacity;
    uint64_t right = b->used * a->capacity;
    return (left > right) - (left < right);
}

static int by_tokens(const struct value *a, const struct value *b)
{
    return (a->tokens < b->tokens) - (a->tokens > b->tokens);
}

static int compare(enum mt_objective objective, const struct value *a, const struct value *b)
{
    typedef int compare_fn(const struct value *, const struct value *);
    static compare_fn *const order[][3] = {
        [MT_OBJECTIVE_CROSSINGS] = {by_devices, by_share, by_tokens},
        [MT_OBJECTIVE_BALANCE] = {by_share, by_devices, by_tokens},
        [MT_OBJECTIVE_ROOM] = {by_tokens, by_devices, by_share},
    };
    int result = 0;
    for (int i = 0; i < 3 && !result; i++)
        result = order[objective][i](a, b);
    return result;
}

static struct value with_stretch(struct value value, const struct mt_place_device *device,
                                 uint64_t bytes, uint64_t grown)
{
    value.devices++;
    if (bytes * value.capacity > value.used * device->capacity_bytes) {
        value.used = bytes;
        value.capacity = device->capacity_bytes;
    }
    uint64_t tokens = grown ? (device->limit_bytes - bytes) / grown : value.tokens;
    value.tokens = tokens < value.tokens ? tokens : value.tokens;
    return value;
}

/* Cuts what is left from unit `from` on in every way. */
static void enumerate(struct best *best, size_t from, unsigned taken, struct value value)
{
    const struct mt_place_problem *problem = best->problem;
    if (from == problem->n_units) {
        if (!best->found || compare(problem->objective, &value, &best->value) < 0)
            best->value = value;
        best->found = 1;
        return;
    }
    for (size_t d = 0; d < problem->n_devices; d++) {
        const struct mt_place_device *device = &problem->devices[d];
        uint64_t bytes = device->overhead_bytes;
        uint64_t grown = 0;
        if (taken & 1u << d)
            continue;
        for (size_t to = from; to < problem->n_units; to++) {
            const struct mt_place_unit *unit = &problem->units[to];
            bytes += unit->dense_bytes + unit->cache_bytes;
            grown += unit->token_bytes;
            if (bytes > device->limit_bytes ||
                (unit->pinned != MT_PLACE_ANY && unit->pinned != (int)d))
                break;
            enumerate(best, to + 1, taken | 1u << d, with_stretch(value, device, bytes, grown));
        }
    }
}

static void make(struct mt_place_unit *units, struct mt_place_device *devices,
                 struct mt_place_problem *problem)
{
    problem->n_units = 1 + draw(UNITS_MAX);
    problem->n_devices = 1 + draw(DEVICES_MAX);
    uint64_t alike = draw(2);
    for (size_t i = 0; i < problem->n_units; i++)
        units[i] = (struct mt_place_unit){.name = "unit",
                                          .dense_bytes = draw(20),
                                          .cache_bytes = draw(5),
                                          .token_bytes = draw(3),
                                          .pinned = MT_PLACE_ANY};
    for (size_t d = 0; d < problem->n_devices; d++) {
        uint64_t capacity = 10 + draw(50);
        uint64_t limit = capacity - draw(10);
        devices[d] = alike && d ? devices[0]
                                : (struct mt_place_device){.capacity_bytes = capacity,
                                                           .limit_bytes = limit,
                                                           .overhead_bytes = draw(6)};
    }
    if (!draw(4))
        units[draw(problem->n_units)].pinned = (int)draw(problem->n_devices);
}

static struct value value_of(const struct mt_place_problem *problem,
                             const struct mt_placement *placement)
{
    struct value value = {0, 0, 1, placement->further_tokens};
    for (size_t d = 0; d < problem->n_devices; d++) {
        uint64_t bytes = placement->devices[d].used_bytes;
        assert_true(bytes <= problem->devices[d].limit_bytes || !placement->devices[d].n_units);
        value.devices += placement->devices[d].n_units > 0;
        if (bytes * value.capacity > value.used * problem->devices[d].capacity_bytes) {
            value.used = bytes;
            value.capacity = problem->devices[d].capacity_bytes;
        }
    }
    return value;
}

static size_t check(struct mt_place_problem *problem, enum mt_objective objective)
{
    struct best best = {.problem = problem};
    struct mt_placement *placement = NULL;
    problem->objective = objective;
    enumerate(&best, 0, 0, (struct value){0, 0, 1, UINT64_MAX});
    int result = mt_place_units(problem, &placement, NULL);
    assert_int_equal(result, best.found ? 0 : MT_ELIMIT);
    if (!best.found)
        return 0;
    struct value value = value_of(problem, placement);
    assert_int_equal(compare(objective, &value, &best.value), 0);
    assert_true(placement->highest_share + 1e-12 >= placement->least_share);
    assert_true(value.devices >= placement->least_devices);
    mt_placement_destroy(placement);
    return 1;
}

static double seconds_of(const struct mt_place_problem *problem, size_t device, size_t unit)
{
    return (double)(problem->units[unit].dense_bytes + problem->units[unit].cache_bytes) /
           problem->devices[device].bytes_per_second;
}

/* The least seconds of all splits of the units from `from` on. */
static double fastest(const struct mt_place_problem *problem, size_t from, unsigned taken)
{
    double best = from == problem->n_units ? -problem->crossing_seconds : 1e9;
    for (size_t d = 0; from < problem->n_units && d < problem->n_devices; d++) {
        uint64_t bytes = problem->devices[d].overhead_bytes;
        double seconds = problem->crossing_seconds;
        for (size_t to = from; !(taken >> d & 1) && to < problem->n_units; to++) {
            bytes += problem->units[to].dense_bytes + problem->units[to].cache_bytes;
            if (bytes > problem->devices[d].limit_bytes ||
                (problem->units[to].pinned != MT_PLACE_ANY && problem->units[to].pinned != (int)d))
                break;
            seconds += seconds_of(problem, d, to);
            double all = seconds + fastest(problem, to + 1, taken | 1u << d);
            best = all < best ? all : best;
        }
    }
    return best;
}

static void test_no_split_is_faster(void **state)
{
    struct mt_place_unit units[UNITS_MAX];
    struct mt_place_device devices[DEVICES_MAX];
    size_t fit = 0;
    (void)state;
    for (size_t i = 0; i < INSTANCES / 4; i++) {
        struct mt_place_problem problem = {
            .units = units, .devices = devices, .objective = MT_OBJECTIVE_SPEED};
        struct mt_placement *placement = NULL;
        make(units, devices, &problem);
        problem.crossing_seconds = (double)draw(6);
        for (size_t d = 0; d < problem.n_devices; d++)
            devices[d].bytes_per_second = 1 + (double)draw(4);
        double best = fastest(&problem, 0, 0);
        int result = mt_place_units(&problem, &placement, NULL);
        assert_int_equal(result, best < 1e8 ? 0 : MT_ELIMIT);
        if (result)
            continue;
        double taken = placement->read_seconds + placement->link_seconds;
        assert_true(taken < best + 1e-9 && taken > best - 1e-9);
        assert_true(placement->least_seconds < best + 1e-9);
        fit++;
        mt_placement_destroy(placement);
    }
    assert_true(fit > INSTANCES / 40);
}

static void test_equal_to_enumeration(void **state)
{
    struct mt_place_unit units[UNITS_MAX];
    struct mt_place_device devices[DEVICES_MAX];
    size_t fit = 0;
    (void)state;
    for (size_t i = 0; i < INSTANCES; i++) {
        struct mt_place_problem problem = {.units = units, .devices = devices};
        make(units, devices, &problem);
        fit += check(&problem, (enum mt_objective)(i % MT_OBJECTIVE_SPEED));
    }
    /* Both answers must have been met often. */
    assert_true(fit > INSTANCES / 10 && fit < INSTANCES - INSTANCES / 10);
}

/* Whether each unit can lie on some device, wherever the others do. */
static int any_way_fits(const struct mt_place_problem *problem, size_t unit, uint64_t *rooms)
{
    if (unit == problem->n_units)
        return 1;
    const struct mt_place_unit *it = &problem->units[unit];
    uint64_t bytes = it->dense_bytes + it->cache_bytes;
    for (size_t d = 0; d < problem->n_devices; d++) {
        if (rooms[d] < bytes ||
            problem->devices[d].limit_bytes < problem->devices[d].overhead_bytes ||
            (it->pinned != MT_PLACE_ANY && it->pinned != (int)d))
            continue;
        rooms[d] -= bytes;
        int fits = any_way_fits(problem, unit + 1, rooms);
        rooms[d] += bytes;
        if (fits)
            return 1;
    }
    return 0;
}

static void test_what_fits_in_any_way_is_found(void **state)
{
    struct mt_place_unit units[UNITS_MAX];
    struct mt_place_device devices[DEVICES_MAX];
    size_t only_broken = 0;
    (void)state;
    for (size_t i = 0; i < INSTANCES; i++) {
        struct mt_place_problem problem = {.units = units, .devices = devices};
        struct mt_placement *placement = NULL;
        uint64_t rooms[DEVICES_MAX];
        make(units, devices, &problem);
        for (size_t d = 0; d < problem.n_devices; d++)
            rooms[d] = devices[d].limit_bytes > devices[d].overhead_bytes
                           ? devices[d].limit_bytes - devices[d].overhead_bytes
                           : 0;
        problem.stretches_may_break = 1;
        int fits = any_way_fits(&problem, 0, rooms);
        assert_int_equal(mt_place_units(&problem, &placement, NULL), fits ? 0 : MT_ELIMIT);
        if (!fits)
            continue;
        only_broken += !placement->is_best;
        for (size_t d = 0; d < problem.n_devices; d++)
            assert_true(placement->devices[d].used_bytes <= devices[d].limit_bytes ||
                        !placement->devices[d].n_units);
        mt_placement_destroy(placement);
    }
    assert_true(only_broken > INSTANCES / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equal_to_enumeration),
                                       cmocka_unit_test(test_no_split_is_faster),
                                       cmocka_unit_test(test_what_fits_in_any_way_is_found)};
    return RUN_TESTS(tests);
}
