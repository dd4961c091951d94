/* SPDX-License-Identifier: MIT */
/* Threads under the recorder: order across them, their ends, their scopes. */
#include <stdlib.h>
#include <string.h>

#include <memtally/category.h>

#include "recorder/harness.h"
#include "tally/replay.h"

#define MARKED 1234

/* How many blocks of `size` the tally's own replay leaves alive, and what the last of them is. */
static size_t live_by_replay(const struct mt_record_file *file, uint64_t size, struct mt_site *last)
{
    struct mt_replay replay;
    size_t n_live = 0;
    mt_replay_init(&replay);
    assert_int_equal(mt_replay_file(&replay, file, UINT64_MAX, NULL), 0);
    const struct mt_heap_block *block;
    for (uint64_t at = 0; (block = mt_blocks_next(&replay.blocks, &at));) {
        if (block->size != size)
            continue;
        *last = mt_replay_site(&replay, block->site);
        n_live++;
    }
    mt_replay_finish(&replay);
    return n_live;
}

static void test_blocks_that_threads_hand_over_are_all_freed_in_order(void **state)
{
    const struct how how = {.depth = DEPTH_FULL, .stacks = STACKS_NONE};
    struct ran *ran = RUN(&how, CHILD, "handover", "8", "20000");
    struct mt_site last;
    size_t n_live;
    (void)state;
    assert_true(exited(ran, 0));
    assert_int_equal(check_order(the_file(ran), MARKED, &n_live), 8 * 20000);
    assert_int_equal(n_live, 0);
    assert_int_equal(live_by_replay(the_file(ran), MARKED, &last), 0);
    assert_int_equal(the_file(ran)->header.events_lost, 0);
    ran_free(ran);
}

static void totals_of_turns(const char *n, uint64_t totals[4], uint64_t said[2])
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "turns", n);
    assert_true(exited(ran, 0));
    totals_of(the_file(ran), totals);
    said[0] = number_after(ran->out, "allocs=");
    said[1] = number_after(ran->out, "alloc_bytes=");
    ran_free(ran);
}

/* The table of thread-local storage that libc makes for a thread is kept for the next one. */
static void test_totals_keep_what_ended_threads_allocated(void **state)
{
    uint64_t one[4], many[4], said_one[2], said_many[2];
    (void)state;
    totals_of_turns("001", one, said_one);
    totals_of_turns("150", many, said_many);
    assert_int_equal(said_many[0], 15000);
    assert_int_equal(many[0] - one[0], said_many[0] - said_one[0]);
    assert_int_equal(many[1] - one[1], said_many[1] - said_one[1]);
    assert_int_equal(many[2] - one[2], 149 * 50);
}

/* How many thread states there were: each says where it lies. */
static size_t count_states(const struct mt_record_file *file)
{
    size_t n_events, n = 0;
    struct mt_event *events = events_of(file, &n_events);
    for (size_t i = 0; i < n_events; i++) {
        if (events[i].op != MT_EVENT_SELF || events[i].field[1] < 60000 ||
            events[i].field[1] > 100000)
            continue;
        size_t j = 0;
        while (j < i && (events[j].op != MT_EVENT_SELF || events[j].field[0] != events[i].field[0]))
            j++;
        n += j == i;
    }
    free(events);
    return n;
}

static void test_the_state_of_an_ended_thread_is_used_again(void **state)
{
    const struct how how = {.depth = DEPTH_FULL, .stacks = STACKS_NONE};
    struct ran *ran = RUN(&how, CHILD, "turns", "100");
    (void)state;
    assert_true(exited(ran, 0));
    assert_in_range(count_states(the_file(ran)), 2, 3);
    ran_free(ran);
}

/* What a detached thread frees after its destructors leaves no state behind. At most nine threads
 * are alive at a time. */
static void test_detached_threads_leave_nothing_behind(void **state)
{
    const struct how how = {.depth = DEPTH_FULL, .stacks = STACKS_NONE};
    struct ran *ran = RUN(&how, CHILD, "detached", "300");
    size_t n_live;
    (void)state;
    assert_true(exited(ran, 0));
    assert_int_equal(check_order(the_file(ran), MARKED, &n_live), 300);
    assert_int_equal(n_live, 0);
    assert_in_range(count_states(the_file(ran)), 2, 40);
    ran_free(ran);
}

static void test_cancelled_threads_free_what_they_allocated(void **state)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "cancel", "20");
    size_t n_live;
    (void)state;
    assert_true(exited(ran, 0));
    assert_true(check_order(the_file(ran), MARKED, &n_live) >= 2 * 20);
    assert_int_equal(n_live, 0);
    assert_int_equal(the_file(ran)->blocks_bad, 0);
    ran_free(ran);
}

static void test_blocks_freed_by_destructors_of_keys_are_seen(void **state)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "keys", "20");
    size_t n_live;
    (void)state;
    assert_true(exited(ran, 0));
    assert_int_equal(check_order(the_file(ran), MARKED, &n_live), 8 * 20);
    assert_int_equal(n_live, 0);
    ran_free(ran);
}

static void test_a_scope_belongs_to_its_thread(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "scoped");
    struct mt_site block;
    (void)state;
    assert_true(exited(ran, 0));
    assert_int_equal(live_by_replay(the_file(ran), 200001, &block), 1);
    assert_int_equal(block.category, MT_CATEGORY_KV_CACHE);
    assert_int_equal(live_by_replay(the_file(ran), 200002, &block), 1);
    assert_int_equal(block.category, MT_CATEGORY_NONE);
    ran_free(ran);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_that_threads_hand_over_are_all_freed_in_order),
        cmocka_unit_test(test_totals_keep_what_ended_threads_allocated),
        cmocka_unit_test(test_the_state_of_an_ended_thread_is_used_again),
        cmocka_unit_test(test_detached_threads_leave_nothing_behind),
        cmocka_unit_test(test_cancelled_threads_free_what_they_allocated),
        cmocka_unit_test(test_blocks_freed_by_destructors_of_keys_are_seen),
        cmocka_unit_test(test_a_scope_belongs_to_its_thread),
    };
    return RUN_TESTS(tests);
}
