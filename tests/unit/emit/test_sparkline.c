/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "emit/sparkline.h"

static void test_values_rise_from_the_lowest_sign_to_the_highest(void **state)
{
    (void)state;
    const uint64_t values[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, UINT64_MAX};
    struct mt_strbuf out = {0};
    mt_sparkline(&out, values, 10, 8, 0);
    assert_string_equal(mt_strbuf_text(&out), "_.:-=+*## ");
    mt_strbuf_finish(&out);
    mt_sparkline(&out, values, 2, 1, 1);
    assert_string_equal(mt_strbuf_text(&out), "\xe2\x96\x81\xe2\x96\x88");
    mt_strbuf_finish(&out);
}

static void test_an_empty_scale_is_a_flat_line(void **state)
{
    (void)state;
    const uint64_t values[] = {0, 0};
    struct mt_strbuf out = {0};
    mt_sparkline(&out, values, 2, 0, 0);
    assert_string_equal(mt_strbuf_text(&out), "__");
    mt_strbuf_finish(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_rise_from_the_lowest_sign_to_the_highest),
        cmocka_unit_test(test_an_empty_scale_is_a_flat_line),
    };
    return RUN_TESTS(tests);
}
