/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "emit/csv.h"

static void test_fields_are_quoted_as_rfc_4180_says(void **state)
{
    (void)state;
    struct mt_strbuf out = {0};
    struct mt_csv csv = {&out, 0};
    mt_csv_headings(&csv, "a,b");
    mt_csv_text(&csv, "plain");
    mt_csv_text(&csv, "a,b");
    mt_csv_text(&csv, "say \"hi\"");
    mt_csv_text(&csv, "two\nlines\xff");
    mt_csv_end_line(&csv);
    mt_csv_text(&csv, "\"");
    mt_csv_end_line(&csv);
    assert_string_equal(mt_strbuf_text(&out), "a,b\n"
                                              "plain,\"a,b\",\"say \"\"hi\"\"\",two\\nlines\\xff\n"
                                              "\"\"\"\"\n");
    mt_strbuf_finish(&out);
}

static void test_unknown_is_an_empty_field_and_zero_is_zero(void **state)
{
    (void)state;
    struct mt_strbuf out = {0};
    struct mt_csv csv = {&out, 0};
    mt_csv_text(&csv, NULL);
    mt_csv_count(&csv, UINT64_MAX);
    mt_csv_real(&csv, -1);
    mt_csv_count(&csv, 0);
    mt_csv_real(&csv, 0);
    mt_csv_count(&csv, 9007199254740993u);
    mt_csv_end_line(&csv);
    assert_string_equal(mt_strbuf_text(&out), ",,,0,0.000,9007199254740993\n");
    mt_strbuf_finish(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_are_quoted_as_rfc_4180_says),
        cmocka_unit_test(test_unknown_is_an_empty_field_and_zero_is_zero),
    };
    return RUN_TESTS(tests);
}
