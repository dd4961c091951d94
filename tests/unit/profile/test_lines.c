/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "drive/lines.h"

/* What was taken, as "<line>" each, and the length of the last. */
struct taken {
    char text[256];
    size_t last_length;
};

static void take(void *context, const char *line, size_t length)
{
    struct taken *taken = context;
    if (strlen(taken->text) + length + 3 < sizeof taken->text) {
        strcat(taken->text, "<");
        strcat(taken->text, line);
        strcat(taken->text, ">");
    }
    taken->last_length = length;
}

static void feed(struct mt_profile_lines *lines, struct taken *taken, const char *text)
{
    mt_profile_lines_feed(lines, text, strlen(text), take, taken);
}

static void test_lines_come_whole_out_of_pieces(void **state)
{
    (void)state;
    struct mt_profile_lines lines = {0};
    struct taken taken = {0};
    feed(&lines, &taken, "one\ntw");
    assert_string_equal(taken.text, "<one>");
    feed(&lines, &taken, "");
    feed(&lines, &taken, "o\n\nthree\r\nfo");
    assert_string_equal(taken.text, "<one><two><><three>");
    mt_profile_lines_finish(&lines, take, &taken);
    assert_string_equal(taken.text, "<one><two><><three><fo>");
}

static void test_end_without_a_started_line_takes_nothing(void **state)
{
    (void)state;
    struct mt_profile_lines lines = {0};
    struct taken taken = {0};
    feed(&lines, &taken, "one\n");
    mt_profile_lines_finish(&lines, take, &taken);
    mt_profile_lines_finish(&lines, take, &taken);
    assert_string_equal(taken.text, "<one>");
}

static void test_huge_line_is_cut_and_the_next_is_whole(void **state)
{
    (void)state;
    struct mt_profile_lines lines = {0};
    struct taken taken = {0};
    size_t length = 3 * MT_PROFILE_LINE_MAX + 1;
    char *huge = malloc(length);
    memset(huge, 'x', length);
    mt_profile_lines_feed(&lines, huge, length, take, &taken);
    mt_profile_lines_feed(&lines, huge, length, take, &taken);
    feed(&lines, &taken, "\n");
    assert_int_equal(taken.last_length, MT_PROFILE_LINE_MAX);
    feed(&lines, &taken, "next\n");
    assert_string_equal(taken.text, "<next>");
    mt_profile_lines_finish(&lines, take, &taken);
    free(huge);
}

static void test_nul_within_a_line_is_kept(void **state)
{
    (void)state;
    struct mt_profile_lines lines = {0};
    struct taken taken = {0};
    mt_profile_lines_feed(&lines, "a\0b\n", 4, take, &taken);
    assert_int_equal(taken.last_length, 3);
    mt_profile_lines_finish(&lines, take, &taken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_come_whole_out_of_pieces),
        cmocka_unit_test(test_end_without_a_started_line_takes_nothing),
        cmocka_unit_test(test_huge_line_is_cut_and_the_next_is_whole),
        cmocka_unit_test(test_nul_within_a_line_is_kept),
    };
    return RUN_TESTS(tests);
}
