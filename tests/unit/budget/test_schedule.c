/* SPDX-License-Identifier: MIT */
/* Orders of programs that share memory: what they may, against all orders where these are few, and
 * against the bound on made sets. */
#include "tests/support/unit.h"

#include <inttypes.h>
#include <memtally/schedule.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB     (1ull << 30)
#define SETS    1000u
#define MOST    400u
#define ALLOWED 1.10
#define FIRST   0u /* sets by which the orders were made, and others */
#define UNSEEN  7000000u

static uint64_t state;

static double next(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* Roughly log-normal without a mathematics library: the product of six numbers around 1. */
static double spread(void)
{
    double product = 1;
    for (int i = 0; i < 6; i++)
        product *= 0.4 + 1.2 * next();
    return product;
}

/* Made as tests of real projects are: many small, some large, times that follow size or do not;
 * 10 to 400 of them, on the host alone, with a device, or with one of several. */
static size_t make_set(unsigned set, struct mt_schedule_item *items, struct mt_schedule_room *room)
{
    state = 18 + set;
    size_t n = 10 + (size_t)(next() * next() * 390);
    memset(room, 0, sizeof *room);
    room->n_places = set % 4 == 0 ? 1 : set % 4 == 3 ? 5 : 2;
    room->first_any = 1;
    room->n_jobs = set % 3 ? 0 : 2 + (size_t)(next() * 30);
    room->bytes[0] = (uint64_t)(8 + next() * 120) * GIB;
    for (size_t k = 1; k < room->n_places; k++)
        room->bytes[k] = 24 * GIB;
    double large = 0.3 * next();
    for (size_t i = 0; i < n; i++) {
        struct mt_schedule_item *item = &items[i];
        memset(item, 0, sizeof *item);
        double share = next() < large ? 0.2 + 0.75 * next() : 0.01 + 0.15 * next() * next();
        item->bytes[0] = (uint64_t)(share * (double)room->bytes[0]);
        item->seconds = 0.05 + spread() * (set % 2 ? 10 : 10 * share);
        if (room->n_places == 2 && next() < 0.5)
            item->bytes[1] = (uint64_t)(next() * next() * 23 * GIB);
        if (room->n_places > 2 && next() < 0.5)
            item->any_bytes = (uint64_t)(next() * next() * 23 * GIB);
    }
    return n;
}

static void hold_sets(unsigned from)
{
    static struct mt_schedule_item items[MOST];
    static size_t order[MOST];
    struct mt_schedule_room room;
    struct mt_schedule schedule;
    unsigned n_worse = 0;
    unsigned n_small = 0;
    double worst = 0;
    double sum = 0;
    for (unsigned set = from; set < from + SETS; set++) {
        size_t n = make_set(set, items, &room);
        double seconds;
        assert_int_equal(mt_schedule_plan(items, n, &room, order, &schedule, NULL), 0);
        assert_int_equal(mt_schedule_time(items, n, &room, order, &seconds, NULL), 0);
        assert_true(seconds == schedule.seconds);
        double ratio = seconds / schedule.least_seconds;
        assert_true(ratio >= 1 - 1e-9);
        worst = ratio > worst ? ratio : worst;
        sum += ratio;
        n_worse += ratio > ALLOWED;
        n_small += schedule.is_small_first != 0;
    }
    print_message(
        "# %u sets: mean %.3f of the bound, worst %.3f, above 1.10: %u, small first: %u\n", SETS,
        sum / SETS, worst, n_worse, n_small);
    /* The bound of the others is mostly too low: `make schedule-proof` asks an exact solver. */
    assert_true(n_worse <= SETS / 50);
}

/* The second thousand had not been seen when the orders were made. */
static void test_a_made_set_ends_within_a_tenth_of_the_bound(void **unused)
{
    (void)unused;
    hold_sets(FIRST);
    hold_sets(UNSEEN);
}

/* Prints the sets that end later than that, for an exact solver: tests/budget/schedule_proof.py. */
static void print_worse(unsigned from)
{
    static struct mt_schedule_item items[MOST];
    static size_t order[MOST];
    struct mt_schedule_room room;
    struct mt_schedule schedule;
    for (unsigned set = from; set < from + SETS; set++) {
        size_t n = make_set(set, items, &room);
        if (mt_schedule_plan(items, n, &room, order, &schedule, NULL) < 0 ||
            schedule.seconds <= schedule.least_seconds * ALLOWED)
            continue;
        printf("%u %.6f %.6f %zu\n", set, schedule.seconds, schedule.least_seconds, room.n_jobs);
        for (size_t k = 0; k < room.n_places; k++)
            printf("%" PRIu64 " ", room.bytes[k]);
        for (size_t i = 0; i < n; i++) {
            printf("\n%.6f %" PRIu64, items[i].seconds, items[i].any_bytes);
            for (size_t k = 0; k < room.n_places; k++)
                printf(" %" PRIu64, items[i].bytes[k]);
        }
        printf("\n\n");
    }
}

/* Visits all orders of 0..n-1 and keeps the shortest. */
static void all_orders(const struct mt_schedule_item *items, size_t n,
                       const struct mt_schedule_room *room, size_t *order, size_t done,
                       double *shortest)
{
    double seconds;
    if (done == n) {
        assert_int_equal(mt_schedule_time(items, n, room, order, &seconds, NULL), 0);
        *shortest = seconds < *shortest ? seconds : *shortest;
        return;
    }
    for (size_t i = done; i < n; i++) {
        size_t kept = order[done];
        order[done] = order[i];
        order[i] = kept;
        all_orders(items, n, room, order, done + 1, shortest);
        order[i] = order[done];
        order[done] = kept;
    }
}

static void test_no_order_is_shorter_than_the_bound(void **unused)
{
    (void)unused;
    static struct mt_schedule_item items[MOST];
    struct mt_schedule_room room;
    struct mt_schedule schedule;
    size_t order[MOST];
    for (unsigned set = 0; set < 300; set++) {
        double shortest = 1e30;
        size_t n = 2 + set % 4;
        make_set(set, items, &room);
        for (size_t i = 0; i < n; i++)
            order[i] = i;
        all_orders(items, n, &room, order, 0, &shortest);
        assert_int_equal(mt_schedule_plan(items, n, &room, order, &schedule, NULL), 0);
        assert_true(schedule.least_seconds <= shortest * (1 + 1e-9));
        assert_true(schedule.seconds >= shortest * (1 - 1e-9));
        assert_true(schedule.seconds <= shortest * (1 + 1e-9) ||
                    schedule.seconds <= schedule.least_seconds * ALLOWED);
    }
}

/* Three need 2 of 5 GiB for 10 s: two fit together, so the third is alone. One needs 1 GiB for 1 s.
 */
static void test_the_bound_and_the_order_of_a_set_by_hand(void **unused)
{
    (void)unused;
    const struct mt_schedule_item items[] = {{.bytes = {2 * GIB}, .seconds = 10},
                                             {.bytes = {2 * GIB}, .seconds = 10},
                                             {.bytes = {2 * GIB}, .seconds = 10},
                                             {.bytes = {1 * GIB}, .seconds = 1}};
    const struct mt_schedule_room room = {.bytes = {5 * GIB}, .n_places = 1, .first_any = 1};
    struct mt_schedule schedule;
    size_t order[4];
    double seconds;
    assert_int_equal(mt_schedule_plan(items, 4, &room, order, &schedule, NULL), 0);
    assert_true(schedule.least_seconds == 20 && schedule.seconds == 20);
    assert_true(schedule.is_small_first && order[0] == 3);
    const size_t given[] = {0, 1, 2, 3};
    assert_int_equal(mt_schedule_time(items, 4, &room, given, &seconds, NULL), 0);
    assert_true(seconds == 20);
    const struct mt_schedule_room one = {
        .bytes = {5 * GIB}, .n_places = 1, .first_any = 1, .n_jobs = 1};
    assert_int_equal(mt_schedule_plan(items, 4, &one, order, &schedule, NULL), 0);
    assert_true(schedule.least_seconds == 31 && schedule.seconds == 31);
}

/* Two of any device fit beside the one that has the first to itself: 3 devices, all at once. */
static void test_any_device_is_one_with_room(void **unused)
{
    (void)unused;
    const struct mt_schedule_item items[] = {{.bytes = {0, 8 * GIB}, .seconds = 5},
                                             {.any_bytes = 5 * GIB, .seconds = 5},
                                             {.any_bytes = 5 * GIB, .seconds = 5},
                                             {.any_bytes = 5 * GIB, .seconds = 5}};
    struct mt_schedule_room room = {
        .bytes = {GIB, 8 * GIB, 8 * GIB, 8 * GIB}, .n_places = 4, .first_any = 1};
    struct mt_schedule schedule;
    size_t order[4];
    assert_int_equal(mt_schedule_plan(items, 3, &room, order, &schedule, NULL), 0);
    assert_true(schedule.seconds == 5);
    assert_int_equal(mt_schedule_plan(items, 4, &room, order, &schedule, NULL), 0);
    assert_true(schedule.seconds == 10 && schedule.least_seconds > 5);
    room.n_places = 1;
    assert_int_equal(mt_schedule_plan(items, 4, &room, order, &schedule, NULL), MT_EARG);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_order_is_shorter_than_the_bound),
        cmocka_unit_test(test_the_bound_and_the_order_of_a_set_by_hand),
        cmocka_unit_test(test_any_device_is_one_with_room),
        cmocka_unit_test(test_a_made_set_ends_within_a_tenth_of_the_bound),
    };
    if (argc > 1 && strcmp(argv[1], "worse") == 0) {
        print_worse(FIRST);
        print_worse(UNSEEN);
        return 0;
    }
    return RUN_TESTS(tests);
}
