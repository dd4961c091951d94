/* SPDX-License-Identifier: MIT */
/* The range map against an array with a value for each address. */
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "tally/extents.h"
#include "tally/ranges.h"

#define SPACE 512u

struct model {
    struct mt_ranges ranges;
    uint64_t value[SPACE]; /* 0: none */
    uint64_t random;
};

static uint64_t next(struct model *model, uint64_t below)
{
    model->random = model->random * 6364136223846793005u + 1442695040888963407u;
    return (model->random >> 33) % below;
}

static void set(struct model *model, uint64_t low, uint64_t high, uint64_t value)
{
    mt_ranges_set(&model->ranges, low, high, value);
    for (uint64_t at = low; at < high; at++)
        model->value[at] = value;
}

static void clear(struct model *model, uint64_t low, uint64_t high)
{
    mt_ranges_clear(&model->ranges, low, high);
    for (uint64_t at = low; at < high; at++)
        model->value[at] = 0;
}

/* To a random place that does not overlap, where there is one. */
static void move(struct model *model, uint64_t low, uint64_t high)
{
    const uint64_t length = high - low;
    uint64_t to = next(model, SPACE - length + 1);
    if (to < high && low < to + length)
        return;
    mt_ranges_move(&model->ranges, low, high, to);
    memcpy(&model->value[to], &model->value[low], length * sizeof *model->value);
    memset(&model->value[low], 0, length * sizeof *model->value);
}

static void assert_same(const struct model *model)
{
    struct mt_range range;
    uint64_t covered = 0;
    uint64_t last = 0;
    size_t n = 0;
    assert_true(mt_ranges_are_valid(&model->ranges));
    for (uint64_t at = 0; at < SPACE; at++) {
        int found = mt_ranges_find(&model->ranges, at, &range);
        assert_int_equal(found, model->value[at] != 0);
        if (found)
            assert_int_equal(range.value, model->value[at]);
    }
    for (uint64_t at = 0; mt_ranges_at_or_after(&model->ranges, at, &range); at = range.high) {
        assert_true(range.low >= last && range.low < range.high);
        last = range.high;
        covered += range.high - range.low;
        n++;
    }
    assert_int_equal(n, model->ranges.n);
    for (uint64_t at = 0; at < SPACE; at++)
        covered -= model->value[at] != 0;
    assert_int_equal(covered, 0);
}

static void test_random_operations_leave_what_an_array_holds(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct model model = {.random = seed};
        mt_ranges_init(&model.ranges);
        for (uint64_t i = 1; i <= 300; i++) {
            uint64_t low = next(&model, SPACE + 1);
            uint64_t high = low + next(&model, next(&model, 8) ? 24 : SPACE);
            if (high > SPACE)
                high = SPACE;
            uint64_t operation = next(&model, 6);
            if (operation < 3)
                set(&model, low, high, i);
            else if (operation < 5)
                move(&model, low, high);
            else
                clear(&model, low, high);
            if (i % 10 == 0)
                assert_same(&model);
        }
        mt_ranges_finish(&model.ranges);
        assert_int_equal(model.ranges.n, 0);
    }
}

static void test_empty_and_backward_ranges_change_nothing(void **state)
{
    (void)state;
    struct model model = {0};
    mt_ranges_init(&model.ranges);
    set(&model, 10, 20, 1);
    mt_ranges_set(&model.ranges, 15, 15, 2);
    mt_ranges_set(&model.ranges, 18, 12, 2);
    mt_ranges_clear(&model.ranges, 12, 12);
    mt_ranges_clear(&model.ranges, 19, 11);
    assert_same(&model);
    mt_ranges_finish(&model.ranges);
}

static void test_the_whole_address_space_is_one_range(void **state)
{
    (void)state;
    struct mt_ranges ranges;
    struct mt_range range;
    mt_ranges_init(&ranges);
    mt_ranges_set(&ranges, 0, UINT64_MAX, 7);
    mt_ranges_clear(&ranges, 1, UINT64_MAX - 1);
    assert_true(mt_ranges_find(&ranges, 0, &range));
    assert_int_equal(range.high, 1);
    assert_true(mt_ranges_find(&ranges, UINT64_MAX - 1, &range));
    assert_int_equal(range.low, UINT64_MAX - 1);
    assert_false(mt_ranges_find(&ranges, UINT64_MAX, &range));
    mt_ranges_finish(&ranges);
}

/* Ascending, descending and from both ends: orders in which a plain tree would be a list, too deep
 * for a recursion on the stack. */
static void test_a_million_ranges_in_any_order_do_not_make_it_deep(void **state)
{
    (void)state;
    const uint64_t n = 1000000;
    for (int order = 0; order < 3; order++) {
        struct mt_ranges ranges;
        struct mt_range range;
        mt_ranges_init(&ranges);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = order == 0 ? i : order == 1 ? n - 1 - i : i % 2 ? i : n - 2 - i;
            mt_ranges_set(&ranges, 2 * at, 2 * at + 1, at + 1);
        }
        assert_int_equal(ranges.n, n);
        assert_true(mt_ranges_find(&ranges, n, &range));
        assert_int_equal(range.value, n / 2 + 1);
        mt_ranges_clear(&ranges, 0, 2 * n);
        assert_int_equal(ranges.n, 0);
        mt_ranges_finish(&ranges);
    }
}

/* Which of two that overlap came first decides where one ends and the other begins, and nothing
 * else. */
static void test_pieces_do_not_depend_on_the_order_of_ranges(void **state)
{
    (void)state;
    const uint64_t page = 4096;
    const uint64_t ends[][2] = {{0, 2 * page}, {page, 4 * page}, {4 * page, 9 * page}};
    struct mt_extents pieces[2] = {0};
    for (size_t order = 0; order < 2; order++) {
        struct mt_ranges ranges;
        mt_ranges_init(&ranges);
        for (size_t i = 0; i < 3; i++) {
            const uint64_t *range = ends[order ? 2 - i : i];
            mt_ranges_set(&ranges, range[0], range[1], 1);
        }
        mt_extents_add(&pieces[order], 0, 16 * page);
        mt_extents_keep(&pieces[order], &ranges);
        mt_ranges_finish(&ranges);
        assert_int_equal(pieces[order].n, 1);
        assert_int_equal(mt_extents_bytes(&pieces[order]), 9 * page);
        mt_extents_share(&pieces[order], 5 * page, page);
        assert_int_equal(mt_extents_bytes(&pieces[order]), 5 * page);
    }
    assert_memory_equal(pieces[0].items, pieces[1].items, sizeof *pieces[0].items);
    mt_extents_finish(&pieces[0]);
    mt_extents_finish(&pieces[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations_leave_what_an_array_holds),
        cmocka_unit_test(test_empty_and_backward_ranges_change_nothing),
        cmocka_unit_test(test_the_whole_address_space_is_one_range),
        cmocka_unit_test(test_a_million_ranges_in_any_order_do_not_make_it_deep),
        cmocka_unit_test(test_pieces_do_not_depend_on_the_order_of_ranges),
    };
    return RUN_TESTS(tests);
}
