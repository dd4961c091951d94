/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <memtally/units.h>

#include "drive/journal.h"

static void test_phase_lasts_until_the_next_begins(void **state)
{
    (void)state;
    struct mt_profile_journal journal;
    mt_profile_journal_init(&journal);
    mt_profile_journal_enter(&journal, MT_PROFILE_LOAD, 0, 100);
    mt_profile_journal_enter(&journal, MT_PROFILE_PREFILL, 1, 250);
    assert_int_equal(journal.n_phases, 2);
    assert_int_equal(journal.phases[0].end_ns, 250);
    assert_true(journal.phases[1].end_ns == MT_UNKNOWN);
    mt_profile_journal_complete(&journal, 400);
    assert_int_equal(journal.phases[1].end_ns, 400);
    assert_true(mt_profile_journal_look(&journal).done);
    mt_profile_journal_finish(&journal);
}

static void test_what_is_done_is_said_in_words(void **state)
{
    (void)state;
    struct mt_profile_journal journal;
    mt_profile_journal_init(&journal);
    assert_string_equal(mt_profile_journal_look(&journal).doing, "start");
    mt_profile_journal_enter(&journal, MT_PROFILE_DECODE, 0, 1);
    assert_string_equal(mt_profile_journal_look(&journal).doing, "warm-up");
    mt_profile_journal_enter(&journal, MT_PROFILE_DECODE, 2, 2);
    assert_string_equal(mt_profile_journal_look(&journal).doing, "decode, run 2");
    mt_profile_journal_finish(&journal);
}

static void test_first_failure_is_the_one_that_counts(void **state)
{
    (void)state;
    struct mt_profile_journal journal;
    mt_profile_journal_init(&journal);
    assert_false(mt_profile_journal_look(&journal).failed);
    assert_int_equal(mt_profile_journal_fail(&journal, MT_EFORMAT, "first %d", 1), MT_EFORMAT);
    mt_profile_journal_fail(&journal, MT_EIO, "second");
    assert_int_equal(journal.error.code, MT_EFORMAT);
    assert_string_equal(journal.error.text, "first 1");
    assert_true(mt_profile_journal_look(&journal).failed);
    mt_profile_journal_finish(&journal);
}

static void test_events_without_end_are_a_failure(void **state)
{
    (void)state;
    struct mt_profile_journal journal;
    mt_profile_journal_init(&journal);
    for (uint64_t i = 0; i < MT_PROFILE_EVENTS_MAX; i++)
        mt_profile_journal_enter(&journal, MT_PROFILE_IDLE, 0, i);
    assert_int_equal(journal.error.code, 0);
    mt_profile_journal_enter(&journal, MT_PROFILE_IDLE, 0, 1);
    assert_int_equal(journal.error.code, MT_ELIMIT);
    assert_int_equal(journal.n_phases, MT_PROFILE_EVENTS_MAX);
    mt_profile_journal_finish(&journal);
}

static void test_text_is_cut_to_its_room(void **state)
{
    (void)state;
    char room[4] = "abc";
    MT_PROFILE_SET_TEXT(room, NULL);
    assert_string_equal(room, "abc");
    MT_PROFILE_SET_TEXT(room, "wxyz");
    assert_string_equal(room, "wxy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phase_lasts_until_the_next_begins),
        cmocka_unit_test(test_what_is_done_is_said_in_words),
        cmocka_unit_test(test_first_failure_is_the_one_that_counts),
        cmocka_unit_test(test_events_without_end_are_a_failure),
        cmocka_unit_test(test_text_is_cut_to_its_room),
    };
    return RUN_TESTS(tests);
}
