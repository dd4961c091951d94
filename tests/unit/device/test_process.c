/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <memtally/units.h>

#include "tests/support/replay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB 1024ull

static void test_the_captured_shell_and_its_child(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_process process;
    struct replay *replay = replay_open("debian-12-cgroup-v1", &os);
    assert_int_equal(mt_process_read(&os, 418, &process, NULL), 0);
    assert_int_equal(process.pid, 418);
    assert_int_equal(process.parent_pid, 4176);
    assert_int_equal(process.state, 'S');
    assert_int_equal(process.start_ticks, 127119);
    assert_string_equal(process.name, "bash");
    assert_int_equal(mt_process_start_ns(&os, &process), 1271190000000);
    assert_int_equal(mt_process_resident_bytes(&os, 418), 1085 * 4096);

    struct mt_process_memory memory;
    assert_int_equal(mt_process_memory_read(&os, 418, &memory, NULL), 0);
    assert_int_equal(memory.resident_bytes, 4340 * KIB);
    assert_int_equal(memory.resident_peak_bytes, 4340 * KIB);
    assert_int_equal(memory.anonymous_bytes, 1232 * KIB);
    assert_int_equal(memory.file_bytes, 3108 * KIB);
    assert_int_equal(memory.shared_memory_bytes, 0);
    assert_int_equal(memory.swap_bytes, 0);
    assert_int_equal(memory.page_table_bytes, 52 * KIB);
    assert_int_equal(memory.hugetlb_bytes, 0);
    assert_int_equal(memory.n_threads, 1);

    char text[64];
    assert_int_equal(mt_process_command(&os, 2013, text, sizeof text), 0);
    assert_string_equal(text, "sleep 100");
    assert_int_equal(mt_process_program(&os, 2013, text, sizeof text), 0);
    assert_string_equal(text, "/usr/bin/sleep");
    assert_int_equal(mt_process_program(&os, 2013, text, strlen("/usr/bin/sleep")), MT_ELIMIT);
    replay_close(replay);
}

static void assert_is(const struct mt_host_os *os, int pid, const char *name, int parent_pid,
                      char process_state)
{
    struct mt_process process;
    assert_int_equal(mt_process_read(os, pid, &process, NULL), 0);
    assert_string_equal(process.name, name);
    assert_int_equal(process.parent_pid, parent_pid);
    assert_int_equal(process.state, process_state);
}

static void test_names_may_hold_anything(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct replay *replay = replay_open("odd-names", &os);
    assert_is(&os, 100, "tmux: server", 1, 'S');
    assert_is(&os, 101, "a) R 7 (b", 100, 'S');
    assert_is(&os, 102, "two\nlines", 101, 'R');
    assert_is(&os, 103, ")", 101, 'Z');
    assert_is(&os, 104, "", 1, 'S');
    assert_is(&os, 55, "kworker/u4:1-events_unbound", 2, 'I');
    replay_close(replay);
}

static void test_a_stat_that_makes_no_sense_is_refused_and_leaves_the_output_alone(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_error error;
    struct mt_process process = {.pid = 7};
    struct replay *replay = replay_open("odd-names", &os);
    for (int pid = 105; pid <= 107; pid++)
        assert_int_equal(mt_process_read(&os, pid, &process, &error), MT_EFORMAT);
    assert_string_equal(error.text, "/proc/107/stat is not as expected");
    assert_int_equal(mt_process_read(&os, 4711, &process, &error), MT_ENOTFOUND);
    assert_int_equal(process.pid, 7);
    replay_close(replay);
}

static void test_the_tree_has_parents_before_children_and_nobody_twice(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_process_list list = {0};
    struct replay *replay = replay_open("odd-names", &os);
    assert_int_equal(mt_process_tree(&os, 100, &list, NULL), 0);
    static const int expected[] = {100, 101, 102, 103, 110};
    assert_int_equal(list.n, 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(list.items[i].pid, expected[i]);
    assert_int_equal(mt_process_tree(&os, 120, &list, NULL), 0); /* its own parent */
    assert_int_equal(list.n, 1);
    assert_int_equal(list.items[0].pid, 120);
    assert_int_equal(mt_process_tree(&os, 4711, &list, NULL), 0);
    assert_int_equal(list.n, 0);
    mt_process_list_finish(&list);
    replay_close(replay);
}

static void test_processes_that_are_hidden_are_left_out_of_the_tree(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_process_list list = {0};
    struct replay *replay = replay_open("hidepid", &os);
    assert_int_equal(mt_process_tree(&os, 812, &list, NULL), 0);
    assert_int_equal(list.n, 1);
    assert_int_equal(mt_process_tree(&os, 1, &list, NULL), 0);
    assert_int_equal(list.n, 0);
    mt_process_list_finish(&list);
    replay_close(replay);
}

static void test_a_hidden_process_is_not_permitted_and_its_sizes_are_unknown(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_error error;
    struct mt_process process;
    struct mt_process_memory memory;
    char text[64] = "untouched";
    struct replay *replay = replay_open("hidepid", &os);
    assert_int_equal(mt_process_read(&os, 900, &process, &error), MT_EPERM);
    assert_int_equal(mt_process_memory_read(&os, 900, &memory, &error), MT_EPERM);
    assert_int_equal(mt_process_resident_bytes(&os, 900), MT_UNKNOWN);
    assert_int_equal(mt_process_program(&os, 900, text, sizeof text), MT_EPERM);
    assert_int_equal(mt_process_command(&os, 900, text, sizeof text), MT_EPERM);
    assert_string_equal(text, "untouched");
    replay_close(replay);
}

static void test_sizes_that_are_missing_or_absurd_are_unknown(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_process_memory memory;
    struct replay *replay = replay_open("odd-names", &os);
    assert_int_equal(mt_process_memory_read(&os, 103, &memory, NULL), 0);
    assert_int_equal(memory.resident_bytes, MT_UNKNOWN);
    assert_int_equal(memory.resident_peak_bytes, MT_UNKNOWN);
    assert_int_equal(memory.anonymous_bytes, MT_UNKNOWN);
    assert_int_equal(memory.swap_bytes, MT_UNKNOWN);
    assert_int_equal(memory.n_threads, 2);
    assert_int_equal(mt_process_resident_bytes(&os, 55), 0);
    assert_int_equal(mt_process_resident_bytes(&os, 103), MT_UNKNOWN);
    replay_close(replay);
}

static void test_commands_are_made_safe_to_print(void **state)
{
    (void)state;
    struct mt_host_os os;
    char text[64];
    struct replay *replay = replay_open("odd-names", &os);
    assert_int_equal(mt_process_command(&os, 101, text, sizeof text), 0);
    assert_string_equal(text, "./a) R 7 (b --text=?[31mred");
    assert_int_equal(mt_process_command(&os, 55, text, sizeof text), 0);
    assert_string_equal(text, "[kworker/u4:1-events_unbound]");
    assert_int_equal(mt_process_command(&os, 101, text, 6), 0);
    assert_string_equal(text, "./a) ");
    replay_close(replay);
}

static void test_a_machine_without_proc_cannot_list_its_processes(void **state)
{
    (void)state;
    static const char *const machines[] = {"=== /etc/hostname\nbare\n", "=== /proc/README\nx\n"};
    for (size_t i = 0; i < 2; i++) {
        struct mt_host_os os;
        struct mt_error error;
        struct mt_process_list list = {0};
        struct replay *replay = replay_text(machines[i], &os);
        assert_int_equal(mt_process_tree(&os, 1, &list, &error), MT_EUNSUPPORTED);
        assert_non_null(strstr(error.text, "mount -t proc proc /proc"));
        assert_int_equal(list.n, 0);
        mt_process_list_finish(&list);
        replay_close(replay);
    }
}

/* Two threads have a child each, and one of these a child of its own, of which nothing is known. */
static const char family[] =
    "=== /proc/7/task/\n7\n9\n=== /proc/8/task/\n8\n"
    "=== /proc/7/task/7/children\n8 11 \n=== /proc/7/task/9/children\n10 \n"
    "=== /proc/8/task/8/children\n7 8 \n"
    "=== /proc/7/stat\n7 (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0\n"
    "=== /proc/8/stat\n8 (b) S 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 6 0\n"
    "=== /proc/10/stat\n10 (c) S 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0\n";

static void test_children_of_all_threads_are_descendants_and_nobody_twice(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_process_list list = {0};
    struct replay *replay = replay_text(family, &os);
    static const int expected[] = {7, 8, 10};
    assert_int_equal(mt_process_descendants(&os, 7, &list, NULL), 0);
    assert_int_equal(list.n, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(list.items[i].pid, expected[i]);
    mt_process_list_finish(&list);
    replay_close(replay);
}

/* A kernel without lists of children, of which the whole of /proc is looked at. */
static void test_without_lists_of_children_the_tree_is_the_same(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_process_list list = {0};
    struct replay *replay = replay_open("odd-names", &os);
    assert_int_equal(mt_process_descendants(&os, 100, &list, NULL), 0);
    assert_int_equal(list.n, 5);
    mt_process_list_finish(&list);
    replay_close(replay);
}

/* The real /proc, on a child that waits for its pipe to close. */
static void test_a_real_child_is_found_with_its_start_and_its_memory(void **state)
{
    (void)state;
    enum { BLOCK = 16 << 20 };
    int ready[2];
    int hold[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(hold), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(hold[1]);
        char *block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(block, 1, BLOCK);
        if (write(ready[1], "x", 1) == 1)
            (void)!read(hold[0], &byte, 1);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);

    struct mt_host_os os;
    mt_host_os_init(&os);
    struct mt_process_list list = {0};
    for (int by_children = 0; by_children < 2; by_children++) {
        assert_int_equal(
            (by_children ? mt_process_descendants : mt_process_tree)(&os, getpid(), &list, NULL),
            0);
        assert_int_equal(list.n, 2);
        assert_int_equal(list.items[0].pid, getpid());
        assert_int_equal(list.items[1].pid, child);
        assert_int_equal(list.items[1].parent_pid, getpid());
        assert_true(list.items[1].stack_start != 0);
        assert_true(list.items[1].stack_start == list.items[0].stack_start); /* it is a fork */
    }
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t start_ns = mt_process_start_ns(&os, &list.items[1]);
    assert_true(start_ns <= (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    assert_true(start_ns >= mt_process_start_ns(&os, &list.items[0]));
    mt_process_list_finish(&list);

    struct mt_process_memory memory;
    assert_int_equal(mt_process_memory_read(&os, child, &memory, NULL), 0);
    assert_true(memory.anonymous_bytes >= BLOCK - 4 * KIB * 64);
    assert_true(mt_process_resident_bytes(&os, child) >= BLOCK);

    close(hold[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(mt_process_resident_bytes(&os, child), MT_UNKNOWN);
    close(hold[0]);
    close(ready[0]);
    close(ready[1]);
}

static void test_numbers_of_processes_ascend(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_process_numbers numbers = {0};
    struct replay *replay = replay_open("odd-names", &os);
    assert_int_equal(mt_process_numbers_read(&os, &numbers, NULL), 0);
    assert_true(numbers.n > 5);
    for (size_t i = 1; i < numbers.n; i++)
        assert_true(numbers.items[i - 1] < numbers.items[i]);
    mt_process_numbers_finish(&numbers);
    replay_close(replay);
}

static long read_made_group(void *context, const char *path, char *bytes, size_t capacity)
{
    (void)context;
    if (strcmp(path, "/proc/7/cgroup") == 0 || strcmp(path, "/proc/19/cgroup") == 0)
        return snprintf(bytes, capacity, "0::/system.slice/docker-c0ffee.scope\n");
    if (strcmp(path, "/proc/8/cgroup") == 0)
        return snprintf(bytes, capacity, "0::/system.slice\n");
    return -ENOENT;
}

/* 7 and 8 count processes as we do, 9 and 19 as nobody else does. */
static long read_made_namespace(void *context, const char *path, char *bytes, size_t capacity)
{
    (void)context;
    return snprintf(bytes, capacity, "pid:[%d]", strstr(path, "9/") ? 9 : 1);
}

static void test_a_process_is_in_a_group_by_its_control_group_or_its_namespace(void **state)
{
    (void)state;
    struct mt_host_os os;
    mt_host_os_init(&os);
    os.read_file = read_made_group;
    os.read_link = read_made_namespace;
    assert_true(mt_process_is_in_group(&os, 7, 7, "c0ffee"));
    assert_false(mt_process_is_in_group(&os, 8, 7, "c0ffee"));
    assert_false(mt_process_is_in_group(&os, 8, 8, "c0ffee")); /* everybody counts so */
    assert_true(mt_process_is_in_group(&os, 9, 9, "c0ffee"));
    assert_false(mt_process_is_in_group(&os, 8, 9, "c0ffee"));
    assert_false(mt_process_is_in_group(&os, 9, 19, "c0ffee")); /* there is a control group */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_captured_shell_and_its_child),
        cmocka_unit_test(test_names_may_hold_anything),
        cmocka_unit_test(test_a_stat_that_makes_no_sense_is_refused_and_leaves_the_output_alone),
        cmocka_unit_test(test_the_tree_has_parents_before_children_and_nobody_twice),
        cmocka_unit_test(test_children_of_all_threads_are_descendants_and_nobody_twice),
        cmocka_unit_test(test_without_lists_of_children_the_tree_is_the_same),
        cmocka_unit_test(test_processes_that_are_hidden_are_left_out_of_the_tree),
        cmocka_unit_test(test_a_hidden_process_is_not_permitted_and_its_sizes_are_unknown),
        cmocka_unit_test(test_sizes_that_are_missing_or_absurd_are_unknown),
        cmocka_unit_test(test_commands_are_made_safe_to_print),
        cmocka_unit_test(test_a_machine_without_proc_cannot_list_its_processes),
        cmocka_unit_test(test_a_real_child_is_found_with_its_start_and_its_memory),
        cmocka_unit_test(test_numbers_of_processes_ascend),
        cmocka_unit_test(test_a_process_is_in_a_group_by_its_control_group_or_its_namespace),
    };
    return RUN_TESTS(tests);
}
