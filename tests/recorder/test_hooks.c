/* SPDX-License-Identifier: MIT */
/* Every function that hooks.def names is seen, once, with the right address and size. */
#include <stdlib.h>
#include <string.h>

#include "recorder/harness.h"

/* Those that leave no event. */
static int tested_elsewhere(const char *name)
{
    return strcmp(name, "_exit") == 0 || strcmp(name, "_Fork") == 0 || strcmp(name, "_Exit") == 0 ||
           strcmp(name, "pipe2") == 0 || strcmp(name, "prctl") == 0;
}

static void hook_is_recorded(const char *name)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "hook", name);
    if (!exited(ran, 0))
        fail_msg("%s", name);
    char *seen = operations_of(the_file(ran), name);
    if (strcmp(seen, ran->out) != 0)
        fail_msg("%s: expected\n%sbut saw\n%s", name, ran->out, seen);
    free(seen);
    ran_free(ran);
}

static void test_each_hooked_function_is_recorded_once(void **state)
{
    static const char *const names[] = {
#define HOOK(result, name, parameters) #name,
#define HOOK_GGML(result, name, parameters)
#define HOOK_JUMP(name)
#define HOOK_OWN(result, name, parameters)
#include "recorder/hooks.def"
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!tested_elsewhere(names[i]))
            hook_is_recorded(names[i]);
}

static void test_scopes_and_labels_are_recorded_in_order(void **state)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "scopes");
    (void)state;
    assert_true(exited(ran, 0));
    char *seen = operations_of(the_file(ran), "scopes");
    assert_string_equal(seen, ran->out);
    free(seen);
    ran_free(ran);
}

static void labels_are_those_that_the_child_says(const char *command)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, command);
    assert_true(exited(ran, 0));
    char *seen = operations_of(the_file(ran), command);
    assert_string_equal(seen, ran->out);
    free(seen);
    ran_free(ran);
}

static void test_a_small_block_that_is_labelled_ends_with_an_event(void **state)
{
    (void)state;
    labels_are_those_that_the_child_says("label_block");
}

static void test_a_block_that_is_labelled_anew_is_written_each_time(void **state)
{
    (void)state;
    labels_are_those_that_the_child_says("label_by_turns");
}

/* Its old place may be another thread's before the call has returned. */
static void test_a_move_says_how_long_it_took(void **state)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "hook", "mremap");
    size_t n_events, n_moves = 0;
    (void)state;
    assert_true(exited(ran, 0));
    struct mt_event *events = events_of(the_file(ran), &n_events);
    for (size_t i = 0; i < n_events; i++) {
        const struct mt_event *event = &events[i];
        if (event->op != MT_EVENT_MREMAP || event->field[0] == event->field[2])
            continue;
        assert_in_range(event->field[4], 1, event->ticks - the_file(ran)->header.start_ticks);
        n_moves++;
    }
    assert_true(n_moves > 0);
    free(events);
    ran_free(ran);
}

/* A library that the program loads at its start takes the block, before any constructor of ours. */
static void test_blocks_of_library_constructors_are_recorded(void **state)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "nothing");
    size_t n_events, found = 0;
    (void)state;
    assert_true(exited(ran, 0));
    struct mt_event *events = events_of(the_file(ran), &n_events);
    for (size_t i = 0; i < n_events; i++)
        found += events[i].op == MT_EVENT_ALLOC && events[i].field[1] == 54321;
    assert_int_equal(found, 1);
    free(events);
    ran_free(ran);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_hooked_function_is_recorded_once),
        cmocka_unit_test(test_a_move_says_how_long_it_took),
        cmocka_unit_test(test_scopes_and_labels_are_recorded_in_order),
        cmocka_unit_test(test_a_small_block_that_is_labelled_ends_with_an_event),
        cmocka_unit_test(test_a_block_that_is_labelled_anew_is_written_each_time),
        cmocka_unit_test(test_blocks_of_library_constructors_are_recorded),
    };
    return RUN_TESTS(tests);
}
