/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "base/varint.h"

static void test_every_width_comes_back(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        for (int64_t around = -1; around <= 1; around++) {
            uint64_t value = ((uint64_t)1 << bit) + (uint64_t)around;
            uint8_t bytes[MT_VARINT_MAX];
            uint8_t *end = mt_varint_put(bytes, value);
            const uint8_t *at = bytes;
            uint64_t back = ~value;
            assert_true(mt_varint_get(&at, end, &back));
            assert_int_equal(back, value);
            assert_ptr_equal(at, end);
        }
    }
}

static void test_zigzag_keeps_small_numbers_small(void **state)
{
    (void)state;
    assert_int_equal(mt_zigzag(0), 0);
    assert_int_equal(mt_zigzag(-1), 1);
    assert_int_equal(mt_zigzag(1), 2);
    assert_int_equal(mt_unzigzag(mt_zigzag(INT64_MIN)), INT64_MIN);
    assert_int_equal(mt_unzigzag(mt_zigzag(INT64_MAX)), INT64_MAX);
}

static void test_short_and_overlong_bytes_are_refused(void **state)
{
    (void)state;
    static const uint8_t unfinished[] = {0x80, 0x80};
    static const uint8_t too_long[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
    const uint8_t *at = unfinished;
    uint64_t value = 7;
    assert_false(mt_varint_get(&at, unfinished + sizeof unfinished, &value));
    assert_ptr_equal(at, unfinished);
    at = too_long;
    assert_false(mt_varint_get(&at, too_long + sizeof too_long, &value));
    assert_int_equal(value, 7);
}

static void test_both_ways_to_write_a_value_give_the_same_bytes(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++)
        for (int off = -1; off <= 1; off++) {
            uint64_t value = ((uint64_t)1 << bit) + (uint64_t)off;
            uint8_t one[MT_VARINT_MAX] = {0};
            uint8_t other[MT_VARINT_MAX] = {0};
            ptrdiff_t length = mt_varint_put(one, value) - one;
            assert_int_equal(mt_varint_put_most(other, value) - other, length);
            assert_memory_equal(one, other, (size_t)length);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways_to_write_a_value_give_the_same_bytes),
        cmocka_unit_test(test_every_width_comes_back),
        cmocka_unit_test(test_zigzag_keeps_small_numbers_small),
        cmocka_unit_test(test_short_and_overlong_bytes_are_refused),
    };
    return RUN_TESTS(tests);
}
