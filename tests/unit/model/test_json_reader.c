/* SPDX-License-Identifier: MIT */
#include "model/json_reader.h"

#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

/* Reads all tokens; returns the first failure, and what it is about in *error. */
static int read_all(const char *text, size_t length, struct mt_error *error)
{
    struct mt_json json;
    struct mt_json_token token;
    mt_json_start(&json, "t.json", text, length, 100);
    int code;
    do {
        code = mt_json_next(&json, &token, error);
    } while (!code && token.type != MT_JSON_END);
    return code;
}

static void assert_valid(const char *text)
{
    struct mt_error error = {0};
    if (read_all(text, strlen(text), &error))
        fail_msg("%s: %s", text, error.text);
}

static void assert_invalid(const char *text, uint64_t at)
{
    struct mt_error error = {0};
    assert_int_equal(read_all(text, strlen(text), &error), MT_EFORMAT);
    if (error.offset != 100 + at)
        fail_msg("%s: failed at %llu, expected %llu: %s", text, (unsigned long long)error.offset,
                 (unsigned long long)(100 + at), error.text);
}

static void test_values_of_every_kind_are_read(void **state)
{
    (void)state;
    assert_valid("{}");
    assert_valid(" [ ] ");
    assert_valid("\"\\u00e9\\n\"");
    assert_valid("-0.5e+10");
    assert_valid("{\"a\":[1,{\"b\":null},true,false],\"a\":\"x\"}");
    assert_valid("[NaN, Infinity, -Infinity]");
}

static void test_what_is_not_json_fails_at_its_byte(void **state)
{
    (void)state;
    assert_invalid("", 0);
    assert_invalid("{", 1);
    assert_invalid("[1,]", 3);
    assert_invalid("{\"a\":1,}", 7);
    assert_invalid("{\"a\" 1}", 5);
    assert_invalid("[1 2]", 3);
    assert_invalid("[1}", 2);
    assert_invalid("01", 1);
    assert_invalid("-", 1);
    assert_invalid("1.", 2);
    assert_invalid("tru", 0);
    assert_invalid("\"a", 2);
    assert_invalid("\"\\x\"", 2);
    assert_invalid("\"\\u12g4\"", 5);
    assert_invalid("\"\n\"", 1);
    assert_invalid("{} {}", 3);
}

static void test_strings_must_be_utf8(void **state)
{
    (void)state;
    assert_valid("\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
    assert_invalid("\"\xff\"", 1);
    assert_invalid("\"\xc0\xaf\"", 1);         /* overlong */
    assert_invalid("\"\xed\xa0\x80\"", 1);     /* a surrogate */
    assert_invalid("\"\xf4\x90\x80\x80\"", 1); /* past U+10FFFF */
    assert_invalid("\"\xe2\x82\"", 1);         /* cut */
}

static void test_half_a_surrogate_pair_is_no_character(void **state)
{
    (void)state;
    assert_valid("\"\\ud83d\\ude00\"");
    assert_valid("\"\\ud7ff\\ue000\"");
    assert_invalid("\"ab\\ud800\"", 3);
    assert_invalid("\"\\udfff\"", 1);
    assert_invalid("\"\\ud800x\"", 1);
    assert_invalid("\"\\ud800\\n\"", 1);
    assert_invalid("\"\\ud800\\ud800\\udc00\"", 1);
    assert_invalid("\"\\ud83d\\ude00\\ude00\"", 13);
    assert_invalid("\"\\ud800\\u0041\"", 1);
    assert_invalid("\"\\ud800\\u00", 11);
    assert_invalid("{\"\\udc00\":1}", 2);
}

static void test_a_depth_of_a_hundred_thousand_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH);
    assert_non_null(text);
    memset(text, '[', DEPTH);
    struct mt_error error = {0};
    assert_int_equal(read_all(text, DEPTH, &error), MT_ELIMIT);
    assert_int_equal(error.offset, 100 + MT_JSON_DEPTH_MAX);
    free(text);
}

static void test_an_array_of_a_million_numbers_is_skipped(void **state)
{
    (void)state;
    enum { N = 1000000 };
    char *text = malloc(2 * N + 2);
    assert_non_null(text);
    text[0] = '[';
    for (size_t i = 0; i < N; i++)
        memcpy(text + 1 + 2 * i, "7,", 2);
    text[2 * N] = ']';
    struct mt_json json;
    struct mt_json_token token;
    mt_json_start(&json, "t.json", text, 2 * N + 1, 0);
    assert_int_equal(mt_json_next(&json, &token, NULL), 0);
    assert_int_equal(mt_json_finish_value(&json, &token, NULL), 0);
    assert_int_equal(token.length, 2 * N + 1);
    free(text);
}

static int number_of(const char *text, uint64_t *number)
{
    struct mt_json_token token = {.type = MT_JSON_NUMBER, .text = text, .length = strlen(text)};
    return mt_json_u64(&token, number);
}

static void test_whole_numbers_up_to_2_64_are_exact(void **state)
{
    (void)state;
    uint64_t n = 1;
    assert_int_equal(number_of("18446744073709551615", &n), 0);
    assert_true(n == UINT64_MAX);
    assert_int_equal(number_of("18446744073709551616", &n), MT_ELIMIT);
    assert_int_equal(number_of("1e30", &n), MT_ELIMIT);
    assert_int_equal(number_of("Infinity", &n), MT_ELIMIT);
    assert_int_equal(number_of("-1", &n), MT_EFORMAT);
    assert_int_equal(number_of("0.5", &n), MT_EFORMAT);
    assert_int_equal(number_of("NaN", &n), MT_EFORMAT);
    assert_int_equal(number_of("1e6", &n), 0);
    assert_int_equal(n, 1000000);
    assert_int_equal(number_of("4096.0", &n), 0);
    assert_int_equal(n, 4096);
}

static void assert_unescapes(const char *text, const char *expected)
{
    struct mt_json_token token = {
        .type = MT_JSON_STRING, .escaped = 1, .text = text, .length = strlen(text)};
    char to[64];
    assert_true(token.length <= sizeof to);
    size_t length = mt_json_unescape(&token, to);
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(to, expected, length);
}

static void test_escapes_become_what_they_stand_for(void **state)
{
    (void)state;
    assert_unescapes("a\\\"\\\\\\/\\b\\f\\n\\r\\tz", "a\"\\/\b\f\n\r\tz");
    assert_unescapes("\\u0041\\u00e9\\u20ac", "A\xc3\xa9\xe2\x82\xac");
    assert_unescapes("\\ud83d\\ude00", "\xf0\x9f\x98\x80");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_of_every_kind_are_read),
        cmocka_unit_test(test_what_is_not_json_fails_at_its_byte),
        cmocka_unit_test(test_strings_must_be_utf8),
        cmocka_unit_test(test_half_a_surrogate_pair_is_no_character),
        cmocka_unit_test(test_a_depth_of_a_hundred_thousand_is_refused),
        cmocka_unit_test(test_an_array_of_a_million_numbers_is_skipped),
        cmocka_unit_test(test_whole_numbers_up_to_2_64_are_exact),
        cmocka_unit_test(test_escapes_become_what_they_stand_for),
    };
    return RUN_TESTS(tests);
}
