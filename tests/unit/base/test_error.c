/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "base/error.h"
#include "base/fail_errno.h"

#include <errno.h>
#include <memtally/category.h>
#include <string.h>

static void test_failing_fills_the_error_and_returns_the_code(void **state)
{
    (void)state;
    struct mt_error error = {0};
    assert_int_equal(mt_fail(&error, MT_EFORMAT, 12, "%s: no magic", "a.mtr"), MT_EFORMAT);
    assert_int_equal(error.code, MT_EFORMAT);
    assert_int_equal(error.offset, 12);
    assert_string_equal(error.text, "a.mtr: no magic");
    assert_int_equal(mt_fail(NULL, MT_EIO, MT_NO_OFFSET, "unheard"), MT_EIO);
}

static void test_errno_gives_its_code_and_its_words(void **state)
{
    (void)state;
    struct mt_error error = {0};
    assert_int_equal(mt_fail_errno(&error, ENOENT, "cannot open %s", "x"), MT_ENOTFOUND);
    assert_string_equal(error.text, "cannot open x: No such file or directory");
    assert_int_equal(mt_fail_errno(&error, EROFS, "x"), MT_EPERM);
}

static void test_a_text_too_long_is_cut_and_terminated(void **state)
{
    (void)state;
    struct mt_error error;
    char longer[1000];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    mt_fail_errno(&error, ENOENT, "%s", longer);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
}

static void test_names_of_codes_and_categories(void **state)
{
    (void)state;
    assert_string_equal(mt_error_name(MT_ECORRUPT), "MT_ECORRUPT");
    assert_string_equal(mt_error_name(-999), "MT_E?");
    for (int category = 1; category < MT_CATEGORY_END; category++)
        assert_int_equal(mt_category_by_name(mt_category_name((enum mt_category)category)),
                         category);
    assert_int_equal(mt_category_by_name("overhead"), MT_CATEGORY_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failing_fills_the_error_and_returns_the_code),
        cmocka_unit_test(test_errno_gives_its_code_and_its_words),
        cmocka_unit_test(test_a_text_too_long_is_cut_and_terminated),
        cmocka_unit_test(test_names_of_codes_and_categories),
    };
    return RUN_TESTS(tests);
}
