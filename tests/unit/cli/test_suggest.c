/* SPDX-License-Identifier: MIT */
/* Distances against the definition, worked out by recursion, and the nearest of names. */
#include "tests/support/unit.h"

#include <string.h>

#include "cli/suggest.h"

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment of the first n and m bytes, by its definition. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    if (!n || !m)
        return n + m;
    size_t best = least(distance(a, n - 1, b, m) + 1, distance(a, n, b, m - 1) + 1);
    best = least(best, distance(a, n - 1, b, m - 1) + (a[n - 1] != b[m - 1]));
    if (n > 1 && m > 1 && a[n - 1] == b[m - 2] && a[n - 2] == b[m - 1])
        best = least(best, distance(a, n - 2, b, m - 2) + 1);
    return best;
}

/* Every pair of words of up to four letters of an alphabet of two. */
static void test_distances_are_those_of_the_definition(void **state)
{
    char words[31][5];
    size_t n = 0;
    (void)state;
    for (unsigned length = 0; length <= 4; length++)
        for (unsigned bits = 0; bits < 1u << length; bits++, n++)
            for (unsigned i = 0; i <= length; i++)
                words[n][i] = i == length ? '\0' : bits >> i & 1 ? 'b' : 'a';
    assert_int_equal(n, 31);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            assert_int_equal(cli_name_distance(words[i], words[j]),
                             distance(words[i], strlen(words[i]), words[j], strlen(words[j])));
}

static void test_long_names_are_as_far_apart_as_they_are_long(void **state)
{
    char long_name[65];
    (void)state;
    memset(long_name, 'a', 64);
    long_name[64] = '\0';
    assert_int_equal(cli_name_distance(long_name, "a"), 64);
    assert_int_equal(cli_name_distance("a", long_name), 64);
    long_name[63] = '\0';
    assert_int_equal(cli_name_distance(long_name, long_name), 0);
    assert_int_equal(cli_name_distance(long_name, "a"), 62);
}

static const char *nearest(const char *wanted)
{
    static const char *const names[] = {"--output", "--on", "--only", "--device", "--json", "-q"};
    struct cli_suggestion suggestion = {.wanted = wanted};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cli_suggestion_offer(&suggestion, names[i]);
    return suggestion.best ? suggestion.best : "none";
}

static void test_the_nearest_name_is_offered_where_one_is_near(void **state)
{
    (void)state;
    assert_string_equal(nearest("--devcie"), "--device");
    assert_string_equal(nearest("--jsno"), "--json");
    assert_string_equal(nearest("--devices"), "--device");
    assert_string_equal(nearest("--no"), "--on");
    assert_string_equal(nearest("--outptu"), "--output");
    assert_string_equal(nearest("--dxvxcx"), "none"); /* three slips */
    assert_string_equal(nearest("--frobnicate"), "none");
    assert_string_equal(nearest(""), "none");
}

static void test_a_name_cut_short_is_as_near_as_one_slip(void **state)
{
    (void)state;
    assert_string_equal(nearest("--out"), "--output");
    assert_string_equal(nearest("--dev"), "--device");
}

/* Two slips in a name of two letters make any other name of it. */
static void test_short_names_are_not_guessed(void **state)
{
    struct cli_suggestion suggestion = {.wanted = "xy"};
    (void)state;
    cli_suggestion_offer(&suggestion, "-q");
    assert_null(suggestion.best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distances_are_those_of_the_definition),
        cmocka_unit_test(test_long_names_are_as_far_apart_as_they_are_long),
        cmocka_unit_test(test_the_nearest_name_is_offered_where_one_is_near),
        cmocka_unit_test(test_a_name_cut_short_is_as_near_as_one_slip),
        cmocka_unit_test(test_short_names_are_not_guessed),
    };
    return RUN_TESTS(tests);
}
