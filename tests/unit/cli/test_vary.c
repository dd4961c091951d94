/* SPDX-License-Identifier: MIT */
/* A command line with a setting that varies. */
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "cli/vary.h"

/* The words with a value, with blanks between them. */
static const char *words_of(const char *text, size_t which, const char *const *command)
{
    static char joined[256];
    char *words[16];
    struct cli_vary vary;
    assert_int_equal(cli_vary_read(text, &vary, NULL), 0);
    assert_int_equal(cli_vary_words(&vary, which, command, words, 16, NULL), 0);
    joined[0] = '\0';
    for (size_t i = 0; words[i]; i++) {
        strcat(joined, i ? " " : "");
        strcat(joined, words[i]);
        free(words[i]);
    }
    return joined;
}

static void test_a_value_is_added_as_a_flag_and_none_is_left_out(void **state)
{
    const char *const command[] = {"serve", "-x", NULL};
    (void)state;
    assert_string_equal(words_of("max_concurrency=none,16", 0, command), "serve -x");
    assert_string_equal(words_of("max_concurrency=none,16", 1, command),
                        "serve -x --max_concurrency 16");
}

static void test_a_value_stands_where_its_name_is_in_braces(void **state)
{
    const char *const command[] = {"serve", "--most", "{c}", "{\"most\": {c}, \"and\": {c}}", NULL};
    (void)state;
    assert_string_equal(words_of("c=16,none", 0, command),
                        "serve --most 16 {\"most\": 16, \"and\": 16}");
    assert_string_equal(words_of("c=16,none", 1, command), "serve {\"most\": null, \"and\": null}");
}

static void test_a_comma_in_brackets_parts_no_values(void **state)
{
    const char *const command[] = {"serve", NULL};
    (void)state;
    assert_string_equal(words_of("s={\"a\":1,\"b\":[2,3]},none", 0, command),
                        "serve --s {\"a\":1,\"b\":[2,3]}");
}

static void test_what_is_no_name_with_two_values_is_refused(void **state)
{
    static const char *const bad[] = {"", "a", "a=", "a=1", "a=1,", "a=,1", "=1,2", "a=1,2,3"};
    struct cli_vary vary;
    struct mt_error error;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(cli_vary_read(bad[i], &vary, &error), MT_EARG);
}

static void test_too_many_words_are_refused_and_none_is_left(void **state)
{
    const char *const command[] = {"a", "b", "c", NULL};
    char *words[4];
    struct cli_vary vary;
    struct mt_error error;
    (void)state;
    assert_int_equal(cli_vary_read("c=1,2", &vary, NULL), 0);
    assert_int_equal(cli_vary_words(&vary, 0, command, words, 4, &error), MT_EARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_value_is_added_as_a_flag_and_none_is_left_out),
        cmocka_unit_test(test_a_value_stands_where_its_name_is_in_braces),
        cmocka_unit_test(test_a_comma_in_brackets_parts_no_values),
        cmocka_unit_test(test_what_is_no_name_with_two_values_is_refused),
        cmocka_unit_test(test_too_many_words_are_refused_and_none_is_left),
    };
    return RUN_TESTS(tests);
}
