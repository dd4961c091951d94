/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "device/span.h"

#include <string.h>

static struct mt_span span_of(const char *bytes)
{
    return (struct mt_span){bytes, bytes + strlen(bytes)};
}

static void test_lines_come_one_by_one_with_or_without_a_last_newline(void **state)
{
    (void)state;
    struct mt_span text = span_of("one\n\nthree");
    struct mt_span line;
    assert_true(mt_span_line(&text, &line));
    assert_true(mt_span_is(&line, "one"));
    assert_true(mt_span_line(&text, &line));
    assert_true(mt_span_is(&line, ""));
    assert_true(mt_span_line(&text, &line));
    assert_true(mt_span_is(&line, "three"));
    assert_false(mt_span_line(&text, &line));
}

static void test_a_number_past_64_bits_is_none(void **state)
{
    (void)state;
    uint64_t value = 7;
    struct mt_span text = span_of(" 18446744073709551615 18446744073709551616");
    assert_true(mt_span_number(&text, &value));
    assert_int_equal(value, UINT64_MAX);
    assert_false(mt_span_number(&text, &value));
    assert_int_equal(value, UINT64_MAX);
    text = span_of("-1");
    assert_false(mt_span_number(&text, &value));
    text = span_of("");
    assert_false(mt_span_number(&text, &value));
}

struct sizes {
    uint64_t cached;
    uint64_t plain;
    uint64_t missing;
};

static const struct mt_field fields[] = {
    {"Cached", offsetof(struct sizes, cached)},
    {"plain", offsetof(struct sizes, plain)},
    {"Missing", offsetof(struct sizes, missing)},
};

static void test_fields_are_found_by_their_whole_key_and_scaled_by_their_unit(void **state)
{
    (void)state;
    struct sizes sizes = {1, 2, 3};
    mt_span_fields(span_of("SwapCached: 9 kB\nCached:\t 12 kB\nCachedMore: 4 kB\nplain 5\nMissing"),
                   fields, 3, &sizes);
    assert_int_equal(sizes.cached, 12 * 1024);
    assert_int_equal(sizes.plain, 5);
    assert_int_equal(sizes.missing, 3);
}

static void test_a_size_that_does_not_fit_leaves_its_field_alone(void **state)
{
    (void)state;
    struct sizes sizes = {1, 2, 3};
    mt_span_fields(span_of("Cached: 18014398509481984 kB\nplain -5\nMissing: \n"), fields, 3,
                   &sizes);
    assert_int_equal(sizes.cached, 1);
    assert_int_equal(sizes.plain, 2);
    assert_int_equal(sizes.missing, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_come_one_by_one_with_or_without_a_last_newline),
        cmocka_unit_test(test_a_number_past_64_bits_is_none),
        cmocka_unit_test(test_fields_are_found_by_their_whole_key_and_scaled_by_their_unit),
        cmocka_unit_test(test_a_size_that_does_not_fit_leaves_its_field_alone),
    };
    return RUN_TESTS(tests);
}
