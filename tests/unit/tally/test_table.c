/* SPDX-License-Identifier: MIT */
/* The table against an array with a value for each key. */
#include "tests/support/unit.h"

#include <stdlib.h>

#include "tally/table.h"

#define KEYS 300u

static uint64_t key_of(uint64_t i)
{
    return i % 3 == 0 ? i * 4096 : i % 3 == 1 ? UINT64_MAX - 1 - i : i << 40;
}

static void assert_same(const struct mt_table *table, const uint64_t value[KEYS])
{
    size_t n = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t found = 0;
        assert_int_equal(mt_table_get(table, key_of(i), &found), value[i] != 0);
        assert_int_equal(found, value[i]);
        n += value[i] != 0;
    }
    assert_int_equal(table->n, n);
}

static void test_random_operations_leave_what_an_array_holds(void **state)
{
    (void)state;
    uint64_t value[KEYS] = {0};
    uint64_t random = 1;
    struct mt_table table;
    mt_table_init(&table);
    for (uint64_t step = 1; step <= 20000; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t i = (random >> 40) % KEYS;
        if ((random >> 33) % 2) {
            assert_int_equal(mt_table_set(&table, key_of(i), step), 0);
            value[i] = step;
        } else {
            uint64_t taken = 0;
            assert_int_equal(mt_table_take(&table, key_of(i), &taken), value[i] != 0);
            assert_int_equal(taken, value[i]);
            value[i] = 0;
        }
        if (step % 500 == 0)
            assert_same(&table, value);
    }
    mt_table_finish(&table);
}

static void test_an_empty_table_has_nothing_to_give(void **state)
{
    (void)state;
    struct mt_table table;
    uint64_t value = 5;
    mt_table_init(&table);
    assert_false(mt_table_get(&table, 1, &value));
    assert_false(mt_table_take(&table, 1, &value));
    assert_int_equal(value, 5);
    mt_table_finish(&table);
}

static void test_taking_without_a_place_for_the_value_removes(void **state)
{
    (void)state;
    struct mt_table table;
    uint64_t value;
    mt_table_init(&table);
    assert_int_equal(mt_table_set(&table, 0, 9), 0);
    assert_true(mt_table_take(&table, 0, NULL));
    assert_false(mt_table_get(&table, 0, &value));
    mt_table_finish(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations_leave_what_an_array_holds),
        cmocka_unit_test(test_an_empty_table_has_nothing_to_give),
        cmocka_unit_test(test_taking_without_a_place_for_the_value_removes),
    };
    return RUN_TESTS(tests);
}
