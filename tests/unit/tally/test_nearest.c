/* SPDX-License-Identifier: MIT */
/* Which picture shows a process best. */
#include "tests/support/unit.h"

#include <stdlib.h>

#include "tally/nearest.h"

#define MIB ((uint64_t)1 << 20)

/* The time of the picture that is chosen, 0 where none is. */
static uint64_t chosen(const struct mt_picture *pictures, size_t n, uint64_t ns, uint64_t bytes)
{
    const struct mt_picture *found = mt_picture_nearest(pictures, n, ns, bytes, NULL);
    return found ? found->ns : 0;
}

static void test_one_of_the_right_size_comes_before_a_nearer_one(void **state)
{
    const struct mt_picture pictures[] = {{.ns = 10, .resident_bytes = 100 * MIB},
                                          {.ns = 20, .resident_bytes = 10 * MIB},
                                          {.ns = 30, .resident_bytes = 60 * MIB},
                                          {.ns = 40, .resident_bytes = 101 * MIB}};
    (void)state;
    assert_int_equal(chosen(pictures, 0, 21, 100 * MIB), 0);
    assert_int_equal(chosen(pictures, 4, 21, 100 * MIB), 10); /* of two the nearer */
    assert_int_equal(chosen(pictures, 4, 26, 100 * MIB), 40);
    assert_int_equal(chosen(pictures, 4, 25, 100 * MIB), 10); /* of two as near the earlier */
    assert_int_equal(chosen(pictures, 4, 50, 10 * MIB), 20);
    assert_int_equal(chosen(pictures, 4, 1, 60 * MIB), 30);
    assert_int_equal(chosen(pictures, 4, 21, 90 * MIB), 10); /* where none is right the closest */
    assert_int_equal(chosen(pictures, 4, 39, 30 * MIB), 20);
    assert_int_equal(chosen(pictures, 4, 20, 100 * MIB), 20); /* of that very time */
}

/* Forks without a picture, each of another time, of a parent with as many pictures, none of which
 * has the right size: the work is no more than so many pictures for each. */
static void test_many_forks_of_a_parent_with_many_pictures(void **state)
{
    enum { MANY = 20000 };
    struct mt_picture *pictures = calloc(MANY, sizeof *pictures);
    size_t looked_at = 0;
    (void)state;
    assert_non_null(pictures);
    for (size_t i = 0; i < MANY; i++)
        pictures[i] = (struct mt_picture){.ns = 10 + 10 * i, .resident_bytes = 500 * MIB};
    pictures[MANY / 2].resident_bytes = 100 * MIB;
    for (size_t i = 0; i < MANY; i++)
        assert_non_null(mt_picture_nearest(pictures, MANY, 11 + 10 * i, 90 * MIB, &looked_at));
    assert_in_range(looked_at, MANY, (uint64_t)MANY * MT_NEAREST_MOST);
    assert_int_equal(chosen(pictures, MANY, 1011 + 10 * (MANY / 2), 90 * MIB),
                     10 + 10 * (MANY / 2)); /* a hundred away */
    looked_at = 0;
    for (size_t i = 0; i < MANY; i++)
        assert_non_null(mt_picture_nearest(pictures, MANY, 11 + 10 * i, 500 * MIB, &looked_at));
    assert_in_range(looked_at, MANY, MANY + 1); /* the first has the right size */
    free(pictures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_of_the_right_size_comes_before_a_nearer_one),
        cmocka_unit_test(test_many_forks_of_a_parent_with_many_pictures),
    };
    return RUN_TESTS(tests);
}
