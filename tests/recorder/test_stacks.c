/* SPDX-License-Identifier: MIT */
/* Call stacks: the frames that the child says it has, and nothing made up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/harness.h"

struct stack {
    size_t n;
    int complete;
    uint64_t frames[MT_MAX_FRAMES];
};

static void find_stack(const struct mt_record_file *file, uint64_t size, struct stack *stack)
{
    size_t n_events;
    const struct mt_event *alloc = NULL;
    struct mt_event *events = events_of(file, &n_events);
    stack->n = 0;
    for (size_t i = 0; i < n_events; i++)
        if (events[i].op == MT_EVENT_ALLOC && events[i].field[1] == size)
            alloc = &events[i];
    assert_non_null(alloc);
    for (size_t i = 0; i < n_events; i++)
        if (events[i].op == MT_EVENT_STACK && events[i].stream == alloc->stream &&
            events[i].field[0] == alloc->field[2]) {
            stack->n = mt_event_frames(&events[i], stack->frames);
            stack->complete = events[i].field[1] != 0;
        }
    free(events);
}

/* The child says where its three innermost functions return to. malloc returns into the innermost,
 * which is a few instructions long. */
static void holds_chain(const struct stack *stack, const char *out, const char *where)
{
    char *at = strstr(out, where);
    assert_non_null(at);
    at += strlen(where) + 1;
    assert_true(stack->n >= 4);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(stack->frames[1 + i], strtoull(at, &at, 0));
    assert_in_range(stack->frames[0], stack->frames[1] - 4096, stack->frames[1] + 4096);
}

static void test_frame_pointers_give_the_whole_chain(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT, .stacks = STACKS_FP};
    struct ran *ran = RUN(&how, CHILD, "stacks");
    struct stack stack;
    (void)state;
    assert_true(exited(ran, 0));
    find_stack(the_file(ran), 300001, &stack);
    holds_chain(&stack, ran->out, "main");
    assert_true(stack.complete);
    find_stack(the_file(ran), 300002, &stack);
    holds_chain(&stack, ran->out, "thread");
    assert_true(stack.complete);
    ran_free(ran);
}

static void test_a_chain_without_frame_pointers_is_said_to_be_cut(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT, .stacks = STACKS_FP};
    struct ran *ran = RUN(&how, CHILD_NO_FP, "stacks");
    struct stack stack;
    (void)state;
    assert_true(exited(ran, 0));
    find_stack(the_file(ran), 300001, &stack);
    assert_true(stack.n >= 1 && !stack.complete);
    find_stack(the_file(ran), 300002, &stack);
    assert_true(stack.n >= 1 && !stack.complete);
    ran_free(ran);
}

static void test_the_unwinder_needs_no_frame_pointers(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT, .stacks = STACKS_UNWIND};
    struct ran *ran = RUN(&how, CHILD_NO_FP, "stacks");
    struct stack stack;
    (void)state;
    assert_true(exited(ran, 0));
    if (the_file(ran)->header.stacks != STACKS_UNWIND) {
        assert_non_null(strstr(ran->err, "libunwind"));
        ran_free(ran);
        NOT_HERE();
    }
    find_stack(the_file(ran), 300001, &stack);
    holds_chain(&stack, ran->out, "main");
    assert_true(stack.complete);
    find_stack(the_file(ran), 300002, &stack);
    holds_chain(&stack, ran->out, "thread");
    ran_free(ran);
}

static void test_without_stacks_there_are_none(void **state)
{
    const struct how how = {.depth = DEPTH_FULL, .stacks = STACKS_NONE};
    struct ran *ran = RUN(&how, CHILD, "stacks");
    struct stack stack;
    (void)state;
    assert_true(exited(ran, 0));
    find_stack(the_file(ran), 300001, &stack);
    assert_int_equal(stack.n, 0);
    ran_free(ran);
}

static void survives(const char *command, const char *child, int stacks)
{
    const struct how how = {.depth = DEPTH_FULL, .stacks = stacks};
    struct ran *ran = RUN(&how, child, command);
    assert_true(exited(ran, 0));
    assert_string_equal(ran->out, "done\n");
    assert_string_equal(ran->err, "");
    ran_free(ran);
}

static void test_strange_stacks_are_not_walked_off(void **state)
{
    (void)state;
    for (int stacks = STACKS_FP; stacks <= STACKS_UNWIND; stacks++) {
        survives("fibers", CHILD, stacks);
        survives("fibers", CHILD_NO_FP, stacks);
        survives("altstack", CHILD, stacks);
        survives("altstack", CHILD_NO_FP, stacks);
    }
}

static void test_a_stack_deeper_than_can_be_kept_is_said_to_be_cut(void **state)
{
    (void)state;
    for (int stacks = STACKS_FP; stacks <= STACKS_UNWIND; stacks++) {
        const struct how how = {.depth = DEPTH_DEFAULT, .stacks = stacks};
        struct ran *ran = RUN(&how, CHILD, "recursion");
        struct stack stack;
        assert_true(exited(ran, 0));
        find_stack(the_file(ran), 300007, &stack);
        assert_int_equal(stack.n, MT_MAX_FRAMES);
        assert_false(stack.complete);
        ran_free(ran);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_pointers_give_the_whole_chain),
        cmocka_unit_test(test_a_chain_without_frame_pointers_is_said_to_be_cut),
        cmocka_unit_test(test_the_unwinder_needs_no_frame_pointers),
        cmocka_unit_test(test_without_stacks_there_are_none),
        cmocka_unit_test(test_strange_stacks_are_not_walked_off),
        cmocka_unit_test(test_a_stack_deeper_than_can_be_kept_is_said_to_be_cut),
    };
    return RUN_TESTS(tests);
}
