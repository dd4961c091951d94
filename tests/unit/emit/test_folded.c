/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "emit/folded.h"

static void assert_folds(const char *const *frames, size_t n, int complete, const char *expected)
{
    struct mt_strbuf out = {0};
    mt_folded_stack(&out, NULL, frames, n, complete, 4096);
    assert_string_equal(mt_strbuf_text(&out), expected);
    mt_strbuf_finish(&out);
}

static void test_stacks_are_written_root_first(void **state)
{
    (void)state;
    const char *const frames[] = {"malloc", "load", "main"};
    assert_folds(frames, 3, 1, "main;load;malloc 4096\n");
    assert_folds(frames, 3, 0, "[truncated];main;load;malloc 4096\n");
    assert_folds(frames, 0, 1, "[unknown] 4096\n");
}

static void test_names_cannot_break_a_line_or_a_frame(void **state)
{
    (void)state;
    const char *const frames[] = {"operator()(a;b)", "two\nlines", ""};
    assert_folds(frames, 3, 1, "[unknown];two lines;operator()(a:b) 4096\n");
}

static void test_a_place_comes_before_all_frames(void **state)
{
    (void)state;
    const char *const frames[] = {"cuMemAlloc", "main"};
    struct mt_strbuf out = {0};
    mt_folded_stack(&out, "gpu:a;b\n", frames, 2, 0, 4096);
    mt_folded_stack(&out, "gpu:0", NULL, 0, 1, 512);
    assert_string_equal(mt_strbuf_text(&out),
                        "gpu:a:b ;[truncated];main;cuMemAlloc 4096\ngpu:0;[unknown] 512\n");
    mt_strbuf_finish(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stacks_are_written_root_first),
        cmocka_unit_test(test_names_cannot_break_a_line_or_a_frame),
        cmocka_unit_test(test_a_place_comes_before_all_frames),
    };
    return RUN_TESTS(tests);
}
