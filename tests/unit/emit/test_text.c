/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "emit/text.h"

#include <locale.h>
#include <string.h>

static void assert_escapes(const char *text, int utf8, const char *expected)
{
    struct mt_strbuf out = {0};
    mt_text_escape(&out, text, utf8);
    assert_string_equal(mt_strbuf_text(&out), expected);
    mt_strbuf_finish(&out);
}

static void assert_repairs(const char *text, const char *expected)
{
    struct mt_strbuf out = {0};
    mt_text_repair(&out, text);
    assert_string_equal(mt_strbuf_text(&out), expected);
    mt_strbuf_finish(&out);
}

static void assert_cuts(const char *text, size_t columns, int utf8, const char *expected)
{
    struct mt_strbuf out = {0};
    mt_text_cut(&out, text, columns, utf8);
    assert_string_equal(mt_strbuf_text(&out), expected);
    mt_strbuf_finish(&out);
}

static void test_control_characters_cannot_reach_the_terminal(void **state)
{
    (void)state;
    assert_escapes("a\x1b[31mred", 1, "a\\x1b[31mred");
    assert_escapes("two\nlines\tand\x7f", 1, "two\\nlines\\tand\\x7f");
    assert_escapes("\xc2\x9b", 1, "\\u009b");
    assert_escapes("exe\xe2\x80\xaetxt", 1, "exe\\u202etxt");
    assert_escapes("caf\xc3\xa9 \xe6\xa8\xa1", 1, "caf\xc3\xa9 \xe6\xa8\xa1");
}

static void test_without_utf8_everything_is_ascii(void **state)
{
    (void)state;
    assert_escapes("caf\xc3\xa9", 0, "caf\\u00e9");
    assert_escapes("\xff\xfe", 0, "\\xff\\xfe");
}

static void test_bytes_that_are_not_utf8_are_seen_as_such(void **state)
{
    (void)state;
    uint32_t point;
    assert_int_equal(mt_utf8_decode("\xc0\xaf", &point), 0);         /* overlong slash */
    assert_int_equal(mt_utf8_decode("\xe0\x80\xaf", &point), 0);     /* overlong slash */
    assert_int_equal(mt_utf8_decode("\xed\xa0\x80", &point), 0);     /* a surrogate */
    assert_int_equal(mt_utf8_decode("\xf4\x90\x80\x80", &point), 0); /* past the last */
    assert_int_equal(mt_utf8_decode("\xe2\x82", &point), 0);         /* cut short */
    assert_int_equal(mt_utf8_decode("\xf0\x9f\x98\x80", &point), 4);
    assert_int_equal(point, 0x1f600);
    assert_escapes("\xe2\x82", 1, "\\xe2\\x82");
    assert_repairs("a\xffz\xe2\x82", "a\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd");
    assert_repairs("\xe2\x82\xac", "\xe2\x82\xac");
}

static void test_long_names_lose_their_middle(void **state)
{
    (void)state;
    assert_cuts("0123456789", 10, 1, "0123456789");
    assert_cuts("0123456789", 7, 1,
                "012\xe2\x80\xa6"
                "789");
    assert_cuts("0123456789", 8, 1,
                "0123\xe2\x80\xa6"
                "789");
    assert_cuts("0123456789", 8, 0, "012...89");
    assert_cuts("0123456789", 2, 0, "01");
    assert_cuts("0123456789", 0, 1, "");
}

static void test_columns_are_characters_and_not_bytes(void **state)
{
    (void)state;
    if (!setlocale(LC_CTYPE, "C.UTF-8")) {
        print_message("# not run: there is no locale C.UTF-8\n");
        return;
    }
    assert_int_equal(mt_text_columns("caf\xc3\xa9"), 4);
    assert_int_equal(mt_text_columns("\xe6\xa8\xa1\xe5\x9e\x8b"), 4);
    /* A wide character that would stick out by half is left away. */
    assert_cuts("\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1", 4, 1, "\xe6\xa8\xa1\xe2\x80\xa6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_characters_cannot_reach_the_terminal),
        cmocka_unit_test(test_without_utf8_everything_is_ascii),
        cmocka_unit_test(test_bytes_that_are_not_utf8_are_seen_as_such),
        cmocka_unit_test(test_long_names_lose_their_middle),
        cmocka_unit_test(test_columns_are_characters_and_not_bytes),
    };
    return RUN_TESTS(tests);
}
