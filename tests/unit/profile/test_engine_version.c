/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <unistd.h>

#include "drive/engine_version.h"

static void test_version_is_the_rest_of_its_line(void **state)
{
    (void)state;
    char version[64] = "untouched";
    assert_true(mt_profile_read_version(
        "version: 0.6.0 (build 7, commit 1a2b)\nbuilt with GNU 12\n", version, sizeof version));
    assert_string_equal(version, "0.6.0 (build 7, commit 1a2b)");
    assert_true(
        mt_profile_read_version("load_backend: x\nversion: 5000 (1a2b)", version, sizeof version));
    assert_string_equal(version, "5000 (1a2b)");
}

static void test_build_that_knows_nothing_is_left_out(void **state)
{
    (void)state;
    char version[64];
    assert_true(mt_profile_read_version("version: 0.6.0-dev (build 0, commit unknown)\n", version,
                                        sizeof version));
    assert_string_equal(version, "0.6.0-dev");
}

static void test_other_text_has_no_version(void **state)
{
    (void)state;
    char version[64] = "untouched";
    assert_false(mt_profile_read_version("", version, sizeof version));
    assert_false(mt_profile_read_version("usage: banana", version, sizeof version));
    assert_false(mt_profile_read_version("version: \nbuilt", version, sizeof version));
    assert_string_equal(version, "untouched");
}

static void test_program_that_fails_or_is_not_there_says_nothing(void **state)
{
    (void)state;
    char version[64] = "untouched";
    mt_profile_ask_version("/bin/false", environ, version, sizeof version);
    mt_profile_ask_version("/nonexistent/program", environ, version, sizeof version);
    assert_string_equal(version, "untouched");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_is_the_rest_of_its_line),
        cmocka_unit_test(test_build_that_knows_nothing_is_left_out),
        cmocka_unit_test(test_other_text_has_no_version),
        cmocka_unit_test(test_program_that_fails_or_is_not_there_says_nothing),
    };
    return RUN_TESTS(tests);
}
