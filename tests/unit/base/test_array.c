/* SPDX-License-Identifier: MIT */
/* Arrays that double. */
#include "tests/support/unit.h"

#include "base/array.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_stay_while_the_array_doubles),
        cmocka_unit_test(test_an_array_that_cannot_grow_is_as_it_was),
    };
    return RUN_TESTS(tests);
}
