/* SPDX-License-Identifier: MIT */
/* A guard's steps by a made clock: a limit of 100, from 85 on, calm below 80. */
#include "tests/support/unit.h"

#include "guard/ladder.h"

#include <string.h>

#define CALL   (1u << MT_GUARD_CALL)
#define SIGNAL (1u << MT_GUARD_SIGNAL)
#define ASK    (1u << MT_GUARD_ASK)
#define FREEZE (1u << MT_GUARD_FREEZE)
#define END    (1u << MT_GUARD_END)
#define KILL   (1u << MT_GUARD_KILL)
#define ALL    (CALL | SIGNAL | FREEZE | END | KILL)

static struct mt_ladder ladder_of(unsigned steps, int is_held)
{
    return (struct mt_ladder){.limit_bytes = 100,
                              .act_bytes = 85,
                              .calm_bytes = 80,
                              .time_ns = {[MT_GUARD_CALL] = 10,
                                          [MT_GUARD_SIGNAL] = 20,
                                          [MT_GUARD_ASK] = 25,
                                          [MT_GUARD_FREEZE] = 30,
                                          [MT_GUARD_END] = 40,
                                          [MT_GUARD_KILL] = 50},
                              .steps = steps,
                              .is_held = is_held,
                              .last_bytes = 100};
}

static void test_steps_go_in_their_order_each_with_its_time(void **state)
{
    struct mt_ladder ladder = ladder_of(ALL, 1);
    (void)state;
    assert_int_equal(mt_ladder_look(&ladder, 0, 84), 0);
    assert_int_equal(mt_ladder_look(&ladder, 1, 85), CALL);
    assert_int_equal(mt_ladder_look(&ladder, 10, 85), 0);
    assert_int_equal(mt_ladder_look(&ladder, 11, 85), SIGNAL);
    assert_int_equal(mt_ladder_look(&ladder, 30, 84), 0);
    assert_int_equal(mt_ladder_look(&ladder, 31, 84), FREEZE); /* not calm yet */
    assert_int_equal(mt_ladder_look(&ladder, 60, 84), 0);
    assert_int_equal(mt_ladder_look(&ladder, 61, 84), END | MT_LADDER_THAW);
    assert_int_equal(mt_ladder_look(&ladder, 100, 84), 0);
    assert_int_equal(mt_ladder_look(&ladder, 101, 84), KILL);
    assert_int_equal(mt_ladder_look(&ladder, 150, 84), 0);
    assert_int_equal(mt_ladder_look(&ladder, 151, 84), KILL); /* who was forked meanwhile */
}

static void test_steps_that_are_not_there_are_left_out(void **state)
{
    struct mt_ladder ladder = ladder_of(SIGNAL | END | KILL, 1);
    (void)state;
    assert_int_equal(mt_ladder_look(&ladder, 0, 85), SIGNAL);
    assert_int_equal(mt_ladder_look(&ladder, 20, 85), END);
}

static void test_a_server_is_asked_before_the_program_stands_still(void **state)
{
    struct mt_ladder ladder = ladder_of(ALL | ASK, 1);
    (void)state;
    assert_int_equal(mt_ladder_look(&ladder, 0, 85), CALL);
    assert_int_equal(mt_ladder_look(&ladder, 10, 85), SIGNAL);
    assert_int_equal(mt_ladder_look(&ladder, 30, 85), ASK);
    assert_int_equal(mt_ladder_look(&ladder, 54, 85), 0);
    assert_int_equal(mt_ladder_look(&ladder, 55, 85), FREEZE);
    /* Nothing holds it: whoever may help is told at once where it grows fast. */
    ladder = ladder_of(SIGNAL | ASK | END | KILL, 0);
    mt_ladder_look(&ladder, 0, 50);
    assert_int_equal(mt_ladder_look(&ladder, 1, 97), SIGNAL | ASK);
}

static void test_steps_begin_anew_after_a_calm(void **state)
{
    struct mt_ladder ladder = ladder_of(ALL, 1);
    (void)state;
    assert_int_equal(mt_ladder_look(&ladder, 0, 85), CALL);
    assert_int_equal(mt_ladder_look(&ladder, 10, 85), SIGNAL);
    assert_int_equal(mt_ladder_look(&ladder, 11, 79), 0);
    assert_int_equal(mt_ladder_look(&ladder, 12, 84), 0);
    assert_int_equal(mt_ladder_look(&ladder, 13, 85), CALL);
}

static void test_who_was_told_to_end_has_no_calm(void **state)
{
    struct mt_ladder ladder = ladder_of(END | KILL, 1);
    (void)state;
    assert_int_equal(mt_ladder_look(&ladder, 0, 85), END);
    assert_int_equal(mt_ladder_look(&ladder, 39, 10), 0);
    assert_int_equal(mt_ladder_look(&ladder, 40, 10), KILL);
}

static void test_a_program_that_grows_fast_is_stopped_at_once(void **state)
{
    struct mt_ladder ladder = ladder_of(ALL, 1);
    (void)state;
    mt_ladder_look(&ladder, 0, 50);
    assert_int_equal(mt_ladder_look(&ladder, 1, 90), CALL | SIGNAL | FREEZE);
    assert_int_equal(mt_ladder_look(&ladder, 30, 90), 0);
    assert_int_equal(mt_ladder_look(&ladder, 31, 90), END | MT_LADDER_THAW);
}

static void test_a_frozen_program_goes_on_in_a_calm(void **state)
{
    struct mt_ladder ladder = ladder_of(ALL, 1);
    (void)state;
    mt_ladder_look(&ladder, 0, 50);
    assert_int_equal(mt_ladder_look(&ladder, 1, 90), CALL | SIGNAL | FREEZE);
    assert_int_equal(mt_ladder_look(&ladder, 2, 70), MT_LADDER_THAW);
}

static void test_what_nothing_holds_ends_at_its_limit_at_once(void **state)
{
    struct mt_ladder held = ladder_of(SIGNAL | END | KILL, 1);
    struct mt_ladder free_one = ladder_of(SIGNAL | END | KILL, 0);
    (void)state;
    assert_int_equal(mt_ladder_look(&held, 0, 98), SIGNAL);
    assert_int_equal(mt_ladder_look(&free_one, 0, 98), SIGNAL | END);
    /* Below it, it may still hear. */
    free_one = ladder_of(SIGNAL | END | KILL, 0);
    mt_ladder_look(&free_one, 0, 50);
    assert_int_equal(mt_ladder_look(&free_one, 1, 97), SIGNAL);
    assert_int_equal(mt_ladder_look(&free_one, 2, 97), 0);
    assert_int_equal(mt_ladder_look(&free_one, 3, 300), END);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_go_in_their_order_each_with_its_time),
        cmocka_unit_test(test_steps_that_are_not_there_are_left_out),
        cmocka_unit_test(test_a_server_is_asked_before_the_program_stands_still),
        cmocka_unit_test(test_steps_begin_anew_after_a_calm),
        cmocka_unit_test(test_who_was_told_to_end_has_no_calm),
        cmocka_unit_test(test_a_program_that_grows_fast_is_stopped_at_once),
        cmocka_unit_test(test_a_frozen_program_goes_on_in_a_calm),
        cmocka_unit_test(test_what_nothing_holds_ends_at_its_limit_at_once),
    };
    return RUN_TESTS(tests);
}
