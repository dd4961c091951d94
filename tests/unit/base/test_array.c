/* SPDX-License-Identifier: MIT */
/* Arrays that double. */
#include "tests/support/unit.h"

#include "base/array.h"

#include <malloc.h>
#include <memtally/error.h>
#include <stdlib.h>

static void test_items_stay_while_the_array_doubles(void **state)
{
    uint64_t *items = NULL;
    size_t n = 0, room = 0;
    (void)state;
    for (; n < 1000; n++) {
        assert_int_equal(mt_array_reserve(items, n, room, 3), 0);
        items[n] = n * n;
    }
    assert_int_equal(room, 3 * 512); /* 3 doubled until 1,000 fit */
    for (size_t i = 0; i < n; i++)
        assert_int_equal(items[i], i * i);
    free(items);
}

static void test_an_array_that_cannot_grow_is_as_it_was(void **state)
{
    uint64_t *items = malloc(sizeof *items);
    uint64_t *before = items;
    size_t room = SIZE_MAX / 2 + 1; /* twice as many are none */
    (void)state;
    assert_int_equal(mt_array_reserve(items, room, room, 1), MT_ENOMEM);
    assert_int_equal(room, SIZE_MAX / 2 + 1);
    assert_ptr_equal(items, before);
    free(items);
}

/* At 0, 1, 2, 4, 8 … items, and not between: what is given out is written to its end. */
static void test_an_array_without_a_capacity_has_room_for_one_more(void **state)
{
    uint64_t *items = NULL;
    (void)state;
    for (size_t n = 0; n < 1000; n++) {
        uint64_t *before = items;
        assert_int_equal(mt_array_grow(items, n), 0);
        assert_true(n == 0 || (n & (n - 1)) == 0 || items == before);
        assert_true(malloc_usable_size(items) >= (n + 1) * sizeof *items);
        items[n] = n * n;
    }
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(items[i], i * i);
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_stay_while_the_array_doubles),
        cmocka_unit_test(test_an_array_that_cannot_grow_is_as_it_was),
        cmocka_unit_test(test_an_array_without_a_capacity_has_room_for_one_more),
    };
    return RUN_TESTS(tests);
}
