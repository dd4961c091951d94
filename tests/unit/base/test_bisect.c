/* SPDX-License-Identifier: MIT */
/* A place by halves is the place that a look at each item finds. */
#include "tests/support/unit.h"

#include "base/bisect.h"

#define ITEMS 40

static size_t by_halves(const unsigned *items, size_t n, unsigned key)
{
    struct mt_bisect place = {.end = n};
    while (mt_bisect_next(&place)) {
        assert_in_range(place.middle, 0, n - 1);
        mt_bisect_turn(&place, items[place.middle] < key);
    }
    return place.first;
}

static size_t one_by_one(const unsigned *items, size_t n, unsigned key)
{
    size_t i = 0;
    while (i < n && items[i] < key)
        i++;
    return i;
}

static void test_the_place_is_the_first_that_does_not_come_before(void **state)
{
    unsigned items[ITEMS];
    (void)state;
    for (unsigned alike = 1; alike < 6; alike++) {
        for (unsigned i = 0; i < ITEMS; i++)
            items[i] = 2 + 2 * (i / alike);
        for (size_t n = 0; n <= ITEMS; n++)
            for (unsigned key = 0; key < 2 * ITEMS + 4; key++)
                assert_int_equal(by_halves(items, n, key), one_by_one(items, n, key));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_place_is_the_first_that_does_not_come_before),
    };
    return RUN_TESTS(tests);
}
