/* SPDX-License-Identifier: MIT */
/* Forks, execs and ends: each process image has its own file, and none harms another's. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/harness.h"

#define OF_PARENT 700001
#define OF_CHILD  700002
#define AFTER     700003
#define SAID      20001

static size_t count(const struct mt_record_file *file, enum mt_event_op op, uint64_t size)
{
    size_t n_events, n = 0;
    struct mt_event *events = events_of(file, &n_events);
    for (size_t i = 0; i < n_events; i++)
        n += events[i].op == op && (!size || events[i].field[1] == size);
    free(events);
    return n;
}

static uint64_t ticks_of_block(const struct mt_record_file *file, uint64_t size)
{
    size_t n_events;
    uint64_t ticks = 0;
    struct mt_event *events = events_of(file, &n_events);
    for (size_t i = 0; i < n_events; i++)
        if (events[i].op == MT_EVENT_ALLOC && events[i].field[1] == size)
            ticks = events[i].ticks;
    free(events);
    assert_true(ticks > 0);
    return ticks;
}

static void parent_is_whole(const struct mt_record_file *file)
{
    assert_int_equal(file->header.flags & MT_FILE_FORKED, 0);
    assert_int_equal(file->blocks_bad, 0);
    assert_int_equal(count(file, MT_EVENT_ALLOC, OF_PARENT), 1);
    assert_int_equal(count(file, MT_EVENT_ALLOC, OF_CHILD), 0);
    assert_int_equal(count(file, MT_EVENT_LABEL_BLOCK, SAID), 1);
    assert_int_equal(count(file, MT_EVENT_ALLOC, AFTER), 1);
    assert_int_equal(file->header.end_kind, MT_END_EXIT);
    assert_true(file->header.end_ticks > ticks_of_block(file, AFTER));
}

/* The child's file holds what the child did: one block, one of its parent's labelled and one freed.
 */
static void child_is_its_own(const struct mt_record_file *child,
                             const struct mt_record_file *parent)
{
    assert_int_equal(child->header.flags & MT_FILE_FORKED, MT_FILE_FORKED);
    assert_int_equal(child->header.parent_pid, parent->header.pid);
    assert_int_equal(child->blocks_bad, 0);
    assert_int_equal(count(child, MT_EVENT_ALLOC, OF_PARENT), 0);
    assert_int_equal(count(child, MT_EVENT_ALLOC, OF_CHILD), 1);
    assert_int_equal(count(child, MT_EVENT_FREE, 0), 1);
    assert_int_equal(count(child, MT_EVENT_LABEL_BLOCK, SAID), 1);
    assert_int_equal(child->header.end_kind, MT_END_EXIT);
    assert_true(child->header.fork_ticks > ticks_of_block(parent, OF_PARENT));
    assert_true(child->header.fork_ticks < ticks_of_block(parent, AFTER));
    assert_true(child->header.fork_ticks <= child->header.start_ticks);
}

static void forks_well(const char *command)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, command);
    assert_true(exited(ran, 0));
    assert_int_equal(ran->n_files, 2);
    const struct mt_record_file *parent = file_of(ran, ran->pid);
    parent_is_whole(parent);
    child_is_its_own(file_of(ran, (pid_t)number_after(ran->out, "child=")), parent);
    ran_free(ran);
}

static void test_a_forked_child_begins_its_own_file(void **state)
{
    (void)state;
    forks_well("forks");
}

static void test_a_thread_forks_as_well(void **state)
{
    (void)state;
    forks_well("forks_in_thread");
}

static void test_a_fork_by_clone_is_a_fork(void **state)
{
    (void)state;
    forks_well("clones");
}

static void test_a_child_by_a_raw_call_says_anew_what_its_parent_said(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "clones", "raw");
    (void)state;
    assert_true(exited(ran, 0));
    assert_int_equal(ran->n_files, 2);
    pid_t child = (pid_t)number_after(ran->out, "child=");
    assert_int_equal(count(file_of(ran, ran->pid), MT_EVENT_LABEL_BLOCK, SAID), 1);
    assert_int_equal(count(file_of(ran, child), MT_EVENT_LABEL_BLOCK, SAID), 1);
    ran_free(ran);
}

static void test_children_of_vfork_do_not_end_their_parent(void **state)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "vforks", CHILD);
    (void)state;
    assert_true(exited(ran, 0));
    assert_int_equal(ran->n_files, 2);
    const struct mt_record_file *parent = file_of(ran, ran->pid);
    assert_int_equal(parent->header.end_kind, MT_END_EXIT);
    assert_true(parent->header.end_ticks > ticks_of_block(parent, AFTER));
    assert_int_equal(parent->blocks_bad, 0);
    const struct mt_record_file *child = file_of(ran, (pid_t)number_after(ran->out, "child="));
    assert_int_equal(child->header.flags & MT_FILE_FORKED, 0);
    assert_int_equal(child->header.parent_pid, parent->header.pid);
    ran_free(ran);
}

/* What follows is recorded to the end, with a picture, though frames of the recorder were left. */
static void goes_on_after_it(const char *command, const char *manner)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, command, manner);
    assert_true(exited(ran, 0));
    assert_string_equal(ran->err, "");
    const struct mt_record_file *file = file_of(ran, ran->pid);
    assert_int_equal(file->blocks_bad, 0);
    assert_int_equal(file->header.events_lost, 0);
    assert_int_equal(file->header.end_kind, MT_END_EXIT);
    assert_true(file->header.end_ticks > ticks_of_block(file, AFTER));
    assert_true(file->header.pictures_taken > 0);
    ran_free(ran);
}

static void goes_on_after(const char *command)
{
    goes_on_after_it(command, NULL);
}

static void test_children_of_vfork_that_are_killed_stop_no_recording(void **state)
{
    (void)state;
    goes_on_after("dies_in_vfork");
}

static void test_a_handler_that_leaves_the_recorder_stops_no_recording(void **state)
{
    (void)state;
    goes_on_after("leaves_calls");
}

static void test_a_handler_with_a_stack_above_interrupts_nothing(void **state)
{
    (void)state;
    goes_on_after("handles_above");
}

static void test_a_child_that_goes_on_with_what_was_interrupted_is_unharmed(void **state)
{
    (void)state;
    goes_on_after("forks_within");
}

static void test_a_child_that_no_handler_of_forks_sees_is_unharmed_too(void **state)
{
    (void)state;
    goes_on_after_it("forks_within", "_Fork");
    goes_on_after_it("forks_within", "call");
}

static void test_a_spawned_program_is_recorded(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "spawns", CHILD);
    (void)state;
    assert_true(exited(ran, 0));
    assert_int_equal(ran->n_files, 2);
    const struct mt_record_file *child = file_of(ran, (pid_t)number_after(ran->out, "child="));
    assert_int_equal(child->header.flags & MT_FILE_FORKED, 0);
    assert_int_equal(child->header.end_kind, MT_END_EXIT);
    ran_free(ran);
}

static void test_exec_goes_on_in_a_file_with_the_next_number(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "execs", CHILD);
    char name[64];
    (void)state;
    assert_true(exited(ran, 0));
    assert_int_equal(ran->n_files, 2);
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "/%d-%zu.mtr", (int)ran->pid, i);
        assert_non_null(strstr(ran->files[i]->path, name));
        assert_int_equal(ran->files[i]->header.flags & MT_FILE_FORKED, 0);
    }
    assert_int_equal(count(ran->files[0], MT_EVENT_ALLOC, OF_PARENT), 1);
    assert_int_equal(ran->files[0]->header.end_kind, MT_END_UNKNOWN);
    assert_int_equal(ran->files[1]->header.end_kind, MT_END_EXIT);
    ran_free(ran);
}

/* Its header, at offset 0, and no block. */
static void test_a_forked_child_has_no_block_of_its_parent(void **state)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "inherits");
    (void)state;
    assert_true(exited(ran, 0));
    assert_true(the_file(ran)->n_blocks > 0);
    assert_non_null(strstr(ran->out, " rw-s 00000000 "));
    assert_null(strstr(strchr(ran->out, '\n') + 1, ".mtr"));
    ran_free(ran);
}

static void test_fifty_children_at_once_write_fifty_files(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "bomb", "50");
    size_t n_children = 0;
    (void)state;
    assert_true(exited(ran, 0));
    assert_int_equal(ran->n_files, 51);
    for (size_t i = 0; i < ran->n_files; i++) {
        assert_int_equal(ran->files[i]->blocks_bad, 0);
        n_children += count(ran->files[i], MT_EVENT_ALLOC, OF_CHILD);
    }
    assert_int_equal(n_children, 50);
    ran_free(ran);
}

static void ends_with(const char *how_it_ends, int status, enum mt_end_kind kind)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "ends", how_it_ends);
    const struct mt_record_file *file = the_file(ran);
    if ((ran->status & ~WCOREFLAG) != status || file->header.end_kind != (uint32_t)kind)
        fail_msg("%s: status %#x, end %u", how_it_ends, (unsigned)ran->status,
                 file->header.end_kind);
    assert_int_equal(count(file, MT_EVENT_ALLOC, OF_PARENT), 1);
    assert_int_equal(file->blocks_bad, 0);
    ran_free(ran);
}

static void test_each_way_to_end_keeps_its_status_and_the_recording(void **state)
{
    (void)state;
    ends_with("return", 7 << 8, MT_END_EXIT);
    ends_with("exit", 7 << 8, MT_END_EXIT);
    ends_with("_exit", 7 << 8, MT_END_EXIT);
    ends_with("_Exit", 7 << 8, MT_END_EXIT);
    ends_with("quick_exit", 7 << 8, MT_END_EXIT);
    ends_with("thread", 7 << 8, MT_END_EXIT);
    ends_with("abort", SIGABRT, MT_END_UNKNOWN);
    ends_with("pointer", SIGSEGV, MT_END_UNKNOWN);
}

/* Kills the program once it has written for a while, however long that takes, or where it ends. */
static void kill_when_it_has_written(pid_t pid, const char *directory)
{
    char path[400];
    struct stat status = {.st_blocks = 0};
    siginfo_t ended = {0};
    snprintf(path, sizeof path, "%s/%d-0.mtr", directory, (int)pid);
    while (status.st_blocks * 512 < 40 * (off_t)MT_BLOCK_BYTES && !ended.si_pid) {
        usleep(1000);
        stat(path, &status);
        waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
}

static void test_what_was_recorded_survives_a_kill(void **state)
{
    const struct how how = {
        .depth = DEPTH_FULL, .stacks = STACKS_NONE, .meanwhile = kill_when_it_has_written};
    struct ran *ran = RUN(&how, CHILD, "forever", "4");
    const struct mt_record_file *file = the_file(ran);
    size_t n_live, n_open = 0;
    (void)state;
    assert_int_equal(ran->status, SIGKILL);
    assert_int_equal(file->blocks_bad, 0);
    for (size_t i = 0; i < file->n_blocks; i++)
        n_open += (size_t)file->blocks[i].open;
    assert_in_range(n_open, 1, 4); /* one of each thread */
    assert_true(file->n_blocks >= 36);
    size_t n_allocated = check_order(file, 1234, &n_live);
    assert_true(n_allocated > 100000);
    assert_in_range(n_live, 1, 64 + 2 * 4); /* the places, and what each thread was about to do */
    ran_free(ran);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_forked_child_begins_its_own_file),
        cmocka_unit_test(test_a_thread_forks_as_well),
        cmocka_unit_test(test_a_fork_by_clone_is_a_fork),
        cmocka_unit_test(test_a_child_by_a_raw_call_says_anew_what_its_parent_said),
        cmocka_unit_test(test_children_of_vfork_do_not_end_their_parent),
        cmocka_unit_test(test_children_of_vfork_that_are_killed_stop_no_recording),
        cmocka_unit_test(test_a_handler_that_leaves_the_recorder_stops_no_recording),
        cmocka_unit_test(test_a_handler_with_a_stack_above_interrupts_nothing),
        cmocka_unit_test(test_a_child_that_goes_on_with_what_was_interrupted_is_unharmed),
        cmocka_unit_test(test_a_child_that_no_handler_of_forks_sees_is_unharmed_too),
        cmocka_unit_test(test_a_spawned_program_is_recorded),
        cmocka_unit_test(test_exec_goes_on_in_a_file_with_the_next_number),
        cmocka_unit_test(test_a_forked_child_has_no_block_of_its_parent),
        cmocka_unit_test(test_fifty_children_at_once_write_fifty_files),
        cmocka_unit_test(test_each_way_to_end_keeps_its_status_and_the_recording),
        cmocka_unit_test(test_what_was_recorded_survives_a_kill),
    };
    return RUN_TESTS(tests);
}
