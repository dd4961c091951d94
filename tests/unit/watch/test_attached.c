/* SPDX-License-Identifier: MIT */
/* How often an attached process is looked at. Time is made here, so that a busy machine changes
 * nothing but by looks that take longer, which are fewer. */
#include "watched.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ticks.h"
#include "watch/watch.h"

#define MS 1000000ull

static struct mt_host_os real;
static int n_sizes; /* reads of statm */

static long count_sizes(void *context, const char *path, char *bytes, size_t capacity)
{
    n_sizes += strstr(path, "/statm") != NULL;
    return real.read_file(context, path, bytes, capacity);
}

static pid_t start_child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* where a test fails */
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    return pid;
}

static struct mt_run *attach_to(pid_t pid)
{
    static int number;
    char folder[96];
    struct mt_error error;
    struct mt_run *run;
    snprintf(folder, sizeof folder, "%s/r%d", watched_folder, number++);
    const struct mt_attach_options options = {.directory = folder, .pid = pid};
    if (mt_attach_start(&options, &run, &error) < 0)
        fail_msg("%s", error.text);
    real = run->host;
    run->host.read_file = count_sizes;
    n_sizes = 0;
    return run;
}

static void look_for(struct mt_run *run, uint64_t from_ms, uint64_t ms)
{
    for (uint64_t at = from_ms; at < from_ms + ms; at++)
        mt_watch_look(run, mt_run_began_ns(run) + at * MS);
}

static void end(struct mt_run *run, pid_t pid)
{
    struct mt_run_result result;
    struct mt_error error;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (mt_run_finish(run, NULL, NULL, &result, &error) < 0)
        fail_msg("%s", error.text);
}

static void test_what_does_not_change_is_looked_at_seldom(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to(pid);
    look_for(run, 1, 100000);
    assert_in_range(n_sizes, 2, 1010); /* each 100 ms; at first each 20 */
    end(run, pid);
}

/* What it took since the last look that rests would else not be known. */
static void test_it_is_looked_at_once_more_at_the_end(void **state)
{
    (void)state;
    struct mt_run_result result;
    struct mt_error error;
    pid_t pid = start_child();
    struct mt_run *run = attach_to(pid);
    usleep(30000);
    if (mt_run_finish(run, NULL, NULL, &result, &error) < 0)
        fail_msg("%s", error.text);
    assert_true(n_sizes > 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void test_the_time_after_a_look_grows_with_what_it_took(void **state)
{
    (void)state;
    assert_int_equal(mt_watch_apart_ns(20 * MS, 10000, 1000), 20 * MS);
    assert_int_equal(mt_watch_apart_ns(20 * MS, MS, 1000), 1000 * MS);
    assert_true(mt_watch_apart_ns(20 * MS, UINT64_MAX / 2, 1000) >= UINT64_MAX / 2);
}

/* The shares of all kinds of looks and of the pictures: an attached process may lose as much again,
 * and no more than a hundredth. */
static void test_all_looks_together_may_take_less_than_half_a_hundredth(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to(pid);
    double share = run->share + 1.0 / MT_WATCH_GPUS_REST_TIMES + 1.0 / MT_WATCH_SAMPLE_REST_TIMES +
                   1.0 / MT_WATCH_TREE_REST_TIMES + 1.0 / MT_WATCH_WHOLE_REST_TIMES +
                   1.0 / MT_WATCH_MACHINE_REST_TIMES;
    assert_true(share * 2 < 0.01);
    end(run, pid);
}

/* ---- a large tree, which is made up: children of the one that lives ---- */

#define CROWD       3000
#define FIRST_CROWD 5000000 /* no process of Linux has such a number */
#define ROOM        (CROWD + 8)

static struct {
    pid_t root;
    int n; /* numbers from FIRST_CROWD on */
    int gone;
    uint64_t start_ticks[ROOM];
    uint64_t pages[ROOM];
    int sizes[ROOM]; /* how often each was looked at */
    int n_stats;     /* reads of who somebody is */
    int changed;     /* whose program is another; -1: nobody's */
} crowd;

static long link_crowd(void *context, const char *path, char *bytes, size_t capacity)
{
    int pid = 0;
    if (sscanf(path, "/proc/%d/exe", &pid) != 1 || pid < FIRST_CROWD)
        return real.read_link(context, path, bytes, capacity);
    return snprintf(bytes, capacity, "/bin/%s",
                    pid - FIRST_CROWD == crowd.changed ? "another" : "made");
}

static int list_crowd(void *context, const char *path,
                      int (*each)(void *each_context, const char *name), void *each_context)
{
    char name[16];
    if (strcmp(path, "/proc") != 0)
        return real.list(context, path, each, each_context);
    snprintf(name, sizeof name, "%d", crowd.root);
    each(each_context, name);
    for (int i = 0; i < crowd.n; i++) {
        snprintf(name, sizeof name, "%d", FIRST_CROWD + i);
        if (i != crowd.gone && each(each_context, name))
            break;
    }
    return 0;
}

static long read_crowd(void *context, const char *path, char *bytes, size_t capacity)
{
    char name[16];
    int pid = 0;
    if (strstr(path, "/children"))
        return -ENOENT; /* the kernel has no lists of children */
    if (sscanf(path, "/proc/%d/%15s", &pid, name) != 2 || pid < FIRST_CROWD)
        return real.read_file(context, path, bytes, capacity);
    int i = pid - FIRST_CROWD;
    if (i >= crowd.n || i == crowd.gone)
        return -ENOENT;
    if (strcmp(name, "statm") == 0) {
        crowd.sizes[i]++;
        return snprintf(bytes, capacity, "%d %d 0", 1 << 20, (int)crowd.pages[i]);
    }
    if (strcmp(name, "stat") != 0)
        return -ENOENT;
    crowd.n_stats++;
    return snprintf(bytes, capacity,
                    "%d (made) S %d 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 %d 0 0 0 0 0 %d 0", pid,
                    crowd.root, (int)crowd.start_ticks[i], 1 + i);
}

static struct mt_run *attach_to_crowd(pid_t pid)
{
    struct mt_run *run = attach_to(pid);
    memset(&crowd, 0, sizeof crowd);
    crowd.root = pid;
    crowd.n = CROWD;
    crowd.gone = crowd.changed = -1;
    for (int i = 0; i < ROOM; i++) {
        crowd.pages[i] = 1000;
        crowd.start_ticks[i] = 1;
    }
    run->host.read_file = read_crowd;
    run->host.list = list_crowd;
    run->host.read_link = link_crowd;
    run->next_sample_ns = run->next_tree_ns = run->next_arrivals_ns = 0;
    mt_watch_look(run, mt_run_began_ns(run));
    assert_int_equal(run->n_processes, CROWD + 1);
    return run;
}

static int sum_of_sizes(void)
{
    int sum = 0;
    for (int i = 0; i < crowd.n; i++)
        sum += crowd.sizes[i];
    return sum;
}

/* A look at sizes now, whatever the last one took on this machine. */
static int look_at_sizes(struct mt_run *run, uint64_t at_ms)
{
    int before = sum_of_sizes();
    run->next_tree_ns = run->next_arrivals_ns = run->next_machine_ns = run->gpus.next_ns =
        UINT64_MAX;
    run->next_sample_ns = 1;
    mt_watch_look(run, mt_run_began_ns(run) + at_ms * MS);
    return sum_of_sizes() - before;
}

static void test_all_of_a_large_tree_are_looked_at_in_turn(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to_crowd(pid);
    memset(crowd.sizes, 0, sizeof crowd.sizes);
    for (uint64_t i = 1; i <= 47; i++) /* of 64 each */
        assert_in_range(look_at_sizes(run, i), 1, 128);
    for (int i = 0; i < CROWD; i++)
        assert_true(crowd.sizes[i] > 0);
    end(run, pid);
}

static void test_one_of_a_large_tree_that_changes_is_looked_at_each_time(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to_crowd(pid);
    for (uint64_t i = 1; i <= 100; i++) {
        crowd.pages[2222] += 100;
        look_at_sizes(run, i); /* its turn comes once in 47 */
    }
    int before = crowd.sizes[2222];
    for (uint64_t i = 101; i <= 110; i++) {
        crowd.pages[2222] += 100;
        look_at_sizes(run, i);
    }
    assert_int_equal(crowd.sizes[2222] - before, 10);
    assert_true(run->peak_resident_bytes >= (CROWD * 1000 + 11000) * 4096ull);
    end(run, pid);
}

/* The first look at all of them comes once: if the next rested a thousand times as long, nothing
 * would be seen for minutes. */
static void test_the_first_look_at_a_large_tree_is_charged_as_a_part(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to_crowd(pid);
    run->next_sample_ns = 0;
    uint64_t now_ns = mt_run_began_ns(run) + 5 * MS;
    uint64_t cpu_ns = mt_thread_cpu_ns();
    mt_watch_look(run, now_ns);
    cpu_ns = mt_thread_cpu_ns() - cpu_ns;
    assert_true(run->next_sample_ns - now_ns <=
                100 * MS + cpu_ns / CROWD * 64 * MT_WATCH_SAMPLE_REST_TIMES);
    end(run, pid);
}

static struct watched *made(struct mt_run *run, int i)
{
    return mt_watch_find(run, FIRST_CROWD + i);
}

static void test_who_comes_and_goes_is_seen_without_a_look_at_all(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to_crowd(pid);
    assert_int_equal(run->numbers.n, CROWD + 1);
    crowd.n_stats = 0;
    crowd.n = CROWD + 2;
    crowd.gone = 7;
    mt_watch_arrivals(run, mt_run_began_ns(run) + MS);
    assert_true(crowd.n_stats < 10);
    assert_int_equal(run->n_processes, CROWD + 2);
    assert_non_null(made(run, CROWD + 1));
    assert_null(made(run, 7));
    assert_non_null(made(run, 8));
    end(run, pid);
}

/* Who came to a tree that has just become large, before the first numbers were noted, waits no
 * longer than in a small one. */
static void test_a_tree_that_becomes_large_is_looked_at_soon_again(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to_crowd(pid);
    run->next_tree_ns = 0;
    run->next_arrivals_ns = UINT64_MAX; /* as of a small tree */
    uint64_t now_ns = mt_run_began_ns(run) + 5 * MS;
    uint64_t cpu_ns = mt_thread_cpu_ns();
    mt_watch_look(run, now_ns);
    cpu_ns = mt_thread_cpu_ns() - cpu_ns;
    assert_true(run->next_arrivals_ns != UINT64_MAX);
    assert_true(run->next_tree_ns - now_ns <= 100 * MS + cpu_ns * MT_WATCH_TREE_REST_TIMES);
    end(run, pid);
}

/* No group has the word in its name, and all count processes as we do: descendants are the tree. */
static void test_who_comes_to_a_group_that_nobody_is_in_is_seen(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to_crowd(pid);
    run->group = strdup("a group that nobody is in");
    assert_non_null(run->group);
    crowd.n = CROWD + 1;
    mt_watch_arrivals(run, mt_run_began_ns(run) + MS);
    assert_non_null(made(run, CROWD));
    end(run, pid);
}

static void test_one_of_a_large_tree_that_calls_exec_is_judged_anew(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to_crowd(pid);
    crowd.changed = 1000;
    for (uint64_t i = 1; i <= 48; i++)
        look_at_sizes(run, i);
    assert_true(made(run, 1000)->replaced);
    assert_true(made(run, 1000)->judged);
    assert_false(made(run, 1001)->replaced);
    end(run, pid);
}

static void test_a_number_that_another_process_has_now_is_not_pictured(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to_crowd(pid);
    crowd.start_ticks[5] = 2;
    made(run, 5)->pictured_ns = made(run, 6)->pictured_ns = 0;
    mt_watch_picture_the_rest(run);
    assert_true(made(run, 5)->pictured_ns == 0);
    assert_true(made(run, 6)->pictured_ns > 0);
    end(run, pid);
}

/* Who has forked is asked of all, for each picture. */
static void test_pictures_of_a_large_tree_do_not_read_all_of_it_each_time(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to_crowd(pid);
    assert_true(made(run, 5)->seen.stack_start == 6);
    for (size_t i = 0; i < run->n_processes; i++)
        run->processes[i].pictured_ns = 0;
    crowd.n_stats = 0;
    mt_watch_picture_the_rest(run);
    assert_in_range(crowd.n_stats, CROWD, 3 * CROWD);
    end(run, pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_does_not_change_is_looked_at_seldom),
        cmocka_unit_test(test_it_is_looked_at_once_more_at_the_end),
        cmocka_unit_test(test_the_time_after_a_look_grows_with_what_it_took),
        cmocka_unit_test(test_all_looks_together_may_take_less_than_half_a_hundredth),
        cmocka_unit_test(test_all_of_a_large_tree_are_looked_at_in_turn),
        cmocka_unit_test(test_one_of_a_large_tree_that_changes_is_looked_at_each_time),
        cmocka_unit_test(test_the_first_look_at_a_large_tree_is_charged_as_a_part),
        cmocka_unit_test(test_who_comes_and_goes_is_seen_without_a_look_at_all),
        cmocka_unit_test(test_a_tree_that_becomes_large_is_looked_at_soon_again),
        cmocka_unit_test(test_who_comes_to_a_group_that_nobody_is_in_is_seen),
        cmocka_unit_test(test_one_of_a_large_tree_that_calls_exec_is_judged_anew),
        cmocka_unit_test(test_a_number_that_another_process_has_now_is_not_pictured),
        cmocka_unit_test(test_pictures_of_a_large_tree_do_not_read_all_of_it_each_time),
    };
    return cmocka_run_group_tests(tests, watched_setup, watched_teardown);
}
