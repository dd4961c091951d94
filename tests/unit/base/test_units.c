/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <memtally/error.h>
#include <memtally/units.h>

static void assert_formats(uint64_t bytes, const char *expected)
{
    char text[MT_SIZE_TEXT];
    assert_string_equal(mt_format_size(bytes, text), expected);
}

static void test_sizes_are_written_with_binary_units(void **state)
{
    (void)state;
    assert_formats(0, "0 B");
    assert_formats(1023, "1023 B");
    assert_formats(1024, "1.00 KiB");
    assert_formats(14184160461, "13.21 GiB");
    assert_formats(1048575, "1.00 MiB");
    assert_formats(UINT64_MAX - 1, "16.00 EiB");
    assert_formats(UINT64_MAX, "unknown");
}

static void assert_parses(const char *text, uint64_t expected)
{
    uint64_t bytes = 7;
    assert_int_equal(mt_parse_size(text, &bytes), 0);
    assert_int_equal(bytes, expected);
}

static void test_sizes_are_read_in_all_their_spellings(void **state)
{
    (void)state;
    assert_parses("4096", 4096);
    assert_parses("16GiB", 17179869184);
    assert_parses("16 GB", 16000000000);
    assert_parses("512M", 536870912);
    assert_parses("1.5k", 1536);
    assert_parses(" 2 mib", 2097152);
    assert_parses("2 MB", 2000000);
}

static void test_what_is_no_size_is_refused_and_leaves_the_output_alone(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "G", "-1", "1..5G", "0x10", "inf", "12 apples", "1 G B"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t bytes = 7;
        assert_int_equal(mt_parse_size(bad[i], &bytes), MT_EARG);
        assert_int_equal(bytes, 7);
    }
    uint64_t bytes = 7;
    assert_int_equal(mt_parse_size("99999999999999999999", &bytes), MT_ELIMIT);
    assert_int_equal(mt_parse_size("16384P", &bytes), MT_ELIMIT);
    assert_int_equal(bytes, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_are_written_with_binary_units),
        cmocka_unit_test(test_sizes_are_read_in_all_their_spellings),
        cmocka_unit_test(test_what_is_no_size_is_refused_and_leaves_the_output_alone),
    };
    return RUN_TESTS(tests);
}
