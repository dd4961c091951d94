/* SPDX-License-Identifier: MIT */
/* Memory that is freed all at once. */
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_objects_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    struct mt_arena arena = {0};
    unsigned char *last = NULL;
    size_t last_bytes = 0;
    for (size_t bytes = 1; bytes < 9000; bytes = bytes * 3 + 1) {
        unsigned char *at = mt_arena_alloc(&arena, bytes);
        assert_non_null(at);
        assert_int_equal((uintptr_t)at % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(at[i], 0);
        memset(at, 0xff, bytes);
        if (last && at > last)
            assert_true((size_t)(at - last) >= last_bytes);
        last = at;
        last_bytes = bytes;
    }
    mt_arena_finish(&arena);
    assert_null(arena.blocks);
}

static void test_small_objects_go_on_behind_a_large_one(void **state)
{
    (void)state;
    struct mt_arena arena = {0};
    char *first = mt_arena_copy(&arena, "first", 5);
    char *large = mt_arena_alloc(&arena, 100000);
    char *second = mt_arena_copy(&arena, "second", 6);
    assert_true(second > first && second - first <= 32);
    memset(large, 1, 100000);
    assert_string_equal(first, "first");
    assert_string_equal(second, "second");
    mt_arena_finish(&arena);
}

static void test_texts_are_terminated_copies(void **state)
{
    (void)state;
    struct mt_arena arena = {0};
    assert_string_equal(mt_arena_copy(&arena, "layers", 5), "layer");
    assert_string_equal(mt_arena_copy(&arena, "", 0), "");
    assert_string_equal(mt_arena_printf(&arena, "blk.%d.%s", 31, "weight"), "blk.31.weight");
    mt_arena_finish(&arena);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct mt_arena arena = {0};
    assert_null(mt_arena_alloc(&arena, SIZE_MAX));
    assert_null(mt_arena_alloc(&arena, SIZE_MAX - 64));
    assert_null(mt_arena_array(&arena, SIZE_MAX / 2, 3));
    assert_null(mt_arena_copy(&arena, "x", SIZE_MAX));
    assert_non_null(mt_arena_array(&arena, 10, 10));
    mt_arena_finish(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects_are_zeroed_aligned_and_apart),
        cmocka_unit_test(test_small_objects_go_on_behind_a_large_one),
        cmocka_unit_test(test_texts_are_terminated_copies),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
