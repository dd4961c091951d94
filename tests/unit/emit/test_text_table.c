/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "emit/text_table.h"

#include <string.h>

static const struct mt_text_table_column columns[] = {
    {"name", MT_CELL_TEXT},
    {"size", MT_CELL_SIZE},
    {"n", MT_CELL_COUNT},
    {"share", MT_CELL_PERCENT},
};

static const struct mt_text_table_look plain_80 = {80, "", "", ""};

static void assert_draws(struct mt_text_table *table, const struct mt_text_table_look *look,
                         const char *expected)
{
    struct mt_strbuf out = {0};
    mt_text_table_draw(table, look, &out);
    assert_false(mt_strbuf_failed(&out));
    assert_string_equal(mt_strbuf_text(&out), expected);
    mt_strbuf_finish(&out);
    mt_text_table_finish(table);
}

static void add(struct mt_text_table *table, size_t indent, const char *name, uint64_t size,
                uint64_t count, double percent)
{
    const struct mt_cell cells[] = {
        {.text = name}, {.number = size}, {.number = count}, {.percent = percent}};
    mt_text_table_add(table, indent, MT_ROW_PLAIN, cells);
}

static void test_text_stands_left_and_figures_right(void **state)
{
    (void)state;
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 4, 0);
    add(&table, 0, "weights", 1048576, 7, 99.5);
    add(&table, 2, "a", 512, 123, 0.5);
    mt_text_table_add_rule(&table);
    add(&table, 0, "total", 1049088, 130, 100);
    assert_draws(&table, &plain_80,
                 "name         size    n    share\n"
                 "weights  1.00 MiB    7   99.5 %\n"
                 "  a         512 B  123    0.5 %\n"
                 "-------------------------------\n"
                 "total    1.00 MiB  130  100.0 %\n");
}

static void test_unknown_is_a_question_mark_and_empty_is_empty(void **state)
{
    (void)state;
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 4, 0);
    add(&table, 0, NULL, UINT64_MAX, UINT64_MAX, -1);
    const struct mt_cell cells[] = {{.text = "x"}, {.number = 0}, {.empty = 1}, {.empty = 1}};
    mt_text_table_add(&table, 0, MT_ROW_PLAIN, cells);
    assert_draws(&table, &plain_80,
                 "name  size  n  share\n"
                 "?        ?  ?      ?\n"
                 "x      0 B\n");
}

static void test_what_is_too_wide_is_cut_in_the_name_only(void **state)
{
    (void)state;
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 4, 0);
    add(&table, 2, "/a/very/long/path/to/some/model-q4_k_m.gguf", 1048576, 7, 99.5);
    const struct mt_text_table_look narrow = {40, "", "", ""};
    assert_draws(&table, &narrow,
                 "name                     size  n   share\n"
                 "  /a/very..._m.gguf  1.00 MiB  7  99.5 %\n");
}

/* A name of an ordinary length is worth more than a column that may go; of a longer one there is
 * enough left. */
static void test_a_column_goes_before_a_name_of_24_columns_is_cut(void **state)
{
    (void)state;
    static const struct mt_text_table_column with_rule[] = {
        {"name", MT_CELL_TEXT, 0}, {"size", MT_CELL_SIZE, 0}, {"rule", MT_CELL_TEXT, 1}};
    const struct mt_text_table_look narrow = {42, "", "", ""};
    struct mt_text_table table;
    struct mt_cell cells[] = {
        {.text = "repacked weights 45678"}, {.number = 1048576}, {.text = "repacked"}};
    mt_text_table_init(&table, with_rule, 3, 0);
    mt_text_table_add(&table, 2, MT_ROW_PLAIN, cells);
    assert_draws(&table, &narrow,
                 "name                          size\n"
                 "  repacked weights 45678  1.00 MiB\n");
    cells[0].text = "repacked weights, in the layout of a processor";
    mt_text_table_init(&table, with_rule, 3, 0);
    const struct mt_text_table_look wider = {44, "", "", ""};
    mt_text_table_add(&table, 2, MT_ROW_PLAIN, cells);
    assert_draws(&table, &wider,
                 "name                          size  rule\n"
                 "  repacked w...processor  1.00 MiB  repacked\n");
}

static void test_names_cannot_break_the_table(void **state)
{
    (void)state;
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 1, 0);
    const struct mt_cell cell = {.text = "evil\n\x1b[2J"};
    mt_text_table_add(&table, 0, MT_ROW_PLAIN, &cell);
    assert_draws(&table, &plain_80, "name\nevil\\n\\x1b[2J\n");
}

static void test_styles_are_closed_on_their_line(void **state)
{
    (void)state;
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 1, 0);
    const struct mt_cell cell = {.text = "x"};
    mt_text_table_add(&table, 0, MT_ROW_FAINT, &cell);
    const struct mt_text_table_look coloured = {80, "<b>", "<f>", "</>"};
    assert_draws(&table, &coloured, "<b>name</>\n<f>x</>\n");
}

static void test_a_cell_has_a_style_of_its_own_and_then_its_rows(void **state)
{
    (void)state;
    struct mt_text_table table;
    static const struct mt_text_table_column verdicts[] = {
        {"name", MT_CELL_TEXT, 0}, {"verdict", MT_CELL_TEXT, 0}, {"why", MT_CELL_TEXT, 0}};
    mt_text_table_init(&table, verdicts, 3, 0);
    const struct mt_cell cells[] = {{.text = "x"}, {.text = "FITS", .style = "<g>"}, {.text = "y"}};
    mt_text_table_add(&table, 0, MT_ROW_BOLD, cells);
    const struct mt_text_table_look coloured = {80, "<b>", "<f>", "</>"};
    assert_draws(&table, &coloured, "<b>name  verdict  why</>\n<b>x     <g>FITS   </><b>  y</>\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_stands_left_and_figures_right),
        cmocka_unit_test(test_unknown_is_a_question_mark_and_empty_is_empty),
        cmocka_unit_test(test_what_is_too_wide_is_cut_in_the_name_only),
        cmocka_unit_test(test_a_column_goes_before_a_name_of_24_columns_is_cut),
        cmocka_unit_test(test_names_cannot_break_the_table),
        cmocka_unit_test(test_styles_are_closed_on_their_line),
        cmocka_unit_test(test_a_cell_has_a_style_of_its_own_and_then_its_rows),
    };
    return RUN_TESTS(tests);
}
