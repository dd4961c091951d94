/* SPDX-License-Identifier: MIT */
/* How often an attached process is looked at. Time is made here, so that a busy machine changes
 * nothing but by looks that take longer, which are fewer. */
#include "watched.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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
    look_for(run, 1, 10000);
    assert_in_range(n_sizes, 2, 110); /* each 100 ms; at first each 20 */
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

/* The shares of all kinds of looks and of the pictures; a device is asked for a thousandth. */
static void test_all_looks_together_may_take_less_than_a_hundredth(void **state)
{
    (void)state;
    pid_t pid = start_child();
    struct mt_run *run = attach_to(pid);
    double share = run->share + 1.0 / MT_WATCH_GPUS_REST_TIMES + 1.0 / MT_WATCH_SAMPLE_REST_TIMES +
                   1.0 / MT_WATCH_TREE_REST_TIMES + 1.0 / MT_WATCH_MACHINE_REST_TIMES;
    assert_true(share < 0.01);
    end(run, pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_does_not_change_is_looked_at_seldom),
        cmocka_unit_test(test_it_is_looked_at_once_more_at_the_end),
        cmocka_unit_test(test_the_time_after_a_look_grows_with_what_it_took),
        cmocka_unit_test(test_all_looks_together_may_take_less_than_a_hundredth),
    };
    return cmocka_run_group_tests(tests, watched_setup, watched_teardown);
}
