/* SPDX-License-Identifier: MIT */
/* The part of TOML that manifests are in. What is read and refused follows TOML 1.0's own text. */
#include "tests/support/unit.h"

#include "cli/budget/toml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *read_as(const char *text)
{
    static char *shown;
    struct mt_error error = {.text = ""};
    static char refused[500];
    json_t *document = budget_parse_toml(text, &error);
    free(shown);
    shown = document ? json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(document);
    snprintf(refused, sizeof refused, "%s", error.text);
    return shown ? shown : refused;
}

static void test_tables_arrays_and_values_are_read(void **state)
{
    (void)state;
    assert_string_equal(read_as(""), "{}");
    assert_string_equal(read_as("# nothing\n\n"), "{}");
    assert_string_equal(read_as("a = \"b\" # why\nc-d_1 = 'e\\f'\r\n"),
                        "{\"a\":\"b\",\"c-d_1\":\"e\\\\f\"}");
    assert_string_equal(read_as("a = -12\nb = true\nc = false"),
                        "{\"a\":-12,\"b\":true,\"c\":false}");
    assert_string_equal(read_as("[x]\na = 1\n[[y]]\nb = 2\n[[y]]\n[ z ]\nc = 3"),
                        "{\"x\":{\"a\":1},\"y\":[{\"b\":2},{}],\"z\":{\"c\":3}}");
    assert_string_equal(read_as("a = [ \"b\", # one\n  'c',\n]"), "{\"a\":[\"b\",\"c\"]}");
    assert_string_equal(read_as("a = {b = 1, \"c d\" = [2]}\ne = {}"),
                        "{\"a\":{\"b\":1,\"c d\":[2]},\"e\":{}}");
    assert_string_equal(read_as("a = \"q\\\"\\n\\t\\\\\""), "{\"a\":\"q\\\"\\n\\t\\\\\"}");
    assert_string_equal(read_as("a = \"\"\nb = '\"'"), "{\"a\":\"\",\"b\":\"\\\"\"}");
}

static void test_what_is_not_read_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"\n\na.b = 1", "line 3: dotted keys"},
        {"a = \"\"\"b\"\"\"", "line 1: strings of several lines"},
        {"a = \"b", "line 1: a string has no end"},
        {"a = \"b\nc\"", "line 1: a string has no end"},
        {"a = \"\\u00e9\"", "line 1: a string has an escape"},
        {"a = 1.5", "line 1: a value is no string"},
        {"a = 2020-01-01", "line 1: a value is no string"},
        {"a =", "line 1: a value is no string"},
        {"a", "line 1: a key needs a value"},
        {"= 1", "line 1: a key is missing"},
        {"a = 1\na = 2", "line 2: the key is there twice"},
        {"[a]\n[a]", "line 2: the table is there twice"},
        {"[a]\n[[a]]", "line 2: the table is there twice"},
        {"[a.b]", "line 1: a table's name"},
        {"[[a]", "line 1: a table's name"},
        {"a = 1 b = 2", "line 1: there is more on the line"},
        {"a = [1 2]", "line 1: an array needs"},
        {"a = [1", "line 1: an array needs"},
        {"a = {b = 1", "line 1: a table in braces"},
        {"a = [[[[[[[[[1]]]]]]]]]", "line 1: arrays and tables are nested too deep"},
        {"a = \"\xff\"", "line 1: a string is no UTF-8"},
        {"\"\xff\" = 1", "line 1: a key is no UTF-8"},
        {"[\"\xff\"]", "line 1: a table's name is no UTF-8"},
        {"a = 99999999999999999999", "line 1: a value is no string"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *said = read_as(cases[i].text);
        if (strncmp(said, cases[i].says, strlen(cases[i].says)) != 0)
            fail_msg("%s: %s", cases[i].text, said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_arrays_and_values_are_read),
        cmocka_unit_test(test_what_is_not_read_is_refused_with_its_line),
    };
    return RUN_TESTS(tests);
}
