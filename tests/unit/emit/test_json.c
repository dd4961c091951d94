/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "emit/json.h"

static void test_keys_keep_their_order_and_unknown_is_null(void **state)
{
    (void)state;
    struct mt_json json = {0};
    struct mt_strbuf out = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_count(&json, "z", 1);
    mt_json_count(&json, "a_bytes", UINT64_MAX);
    mt_json_text(&json, "name", NULL);
    mt_json_real(&json, "latency_ms", -1);
    mt_json_begin_array(&json, "list");
    mt_json_bool(&json, NULL, 1);
    mt_json_signed(&json, NULL, -5);
    mt_json_end(&json);
    mt_json_real(&json, "share", 13.1);
    mt_json_end(&json);
    mt_json_finish(&json, &out);
    assert_string_equal(mt_strbuf_text(&out), "{\n"
                                              "  \"z\": 1,\n"
                                              "  \"a_bytes\": null,\n"
                                              "  \"name\": null,\n"
                                              "  \"latency_ms\": null,\n"
                                              "  \"list\": [\n"
                                              "    true,\n"
                                              "    -5\n"
                                              "  ],\n"
                                              "  \"share\": 13.1\n"
                                              "}\n");
    mt_strbuf_finish(&out);
}

static void test_sizes_past_two_to_the_53_stay_exact(void **state)
{
    (void)state;
    struct mt_json json = {0};
    struct mt_strbuf out = {0};
    mt_json_begin_array(&json, NULL);
    mt_json_count(&json, NULL, 9007199254740993u);
    mt_json_count(&json, NULL, INT64_MAX);
    mt_json_end(&json);
    mt_json_finish(&json, &out);
    assert_string_equal(mt_strbuf_text(&out), "[\n  9007199254740993,\n  9223372036854775807\n]\n");
    mt_strbuf_finish(&out);
}

static void test_a_name_that_is_not_utf8_does_not_lose_the_document(void **state)
{
    (void)state;
    struct mt_json json = {0};
    struct mt_strbuf out = {0};
    mt_json_begin_array(&json, NULL);
    mt_json_text(&json, NULL, "a\xff\x01\"z");
    mt_json_finish(&json, &out);
    assert_false(mt_strbuf_failed(&out));
    assert_string_equal(mt_strbuf_text(&out), "[\n  \"a\xef\xbf\xbd\\u0001\\\"z\"\n]\n");
    mt_strbuf_finish(&out);
}

static void test_what_cannot_be_written_is_a_failure_and_no_half_document(void **state)
{
    (void)state;
    struct mt_json json = {0};
    struct mt_strbuf out = {0};
    for (int i = 0; i <= MT_JSON_DEPTH_MAX; i++)
        mt_json_begin_array(&json, NULL);
    mt_json_finish(&json, &out);
    assert_true(mt_strbuf_failed(&out));
    mt_strbuf_finish(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_keep_their_order_and_unknown_is_null),
        cmocka_unit_test(test_sizes_past_two_to_the_53_stay_exact),
        cmocka_unit_test(test_a_name_that_is_not_utf8_does_not_lose_the_document),
        cmocka_unit_test(test_what_cannot_be_written_is_a_failure_and_no_half_document),
    };
    return RUN_TESTS(tests);
}
