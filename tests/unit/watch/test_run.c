/* SPDX-License-Identifier: MIT */
/* Starting a program and passing on how it ended. */
#include "watched.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memtally/error.h>

static void assert_line(struct watched_run *run, const char *expected)
{
    char line[256];
    watched_read_line(run, line);
    assert_string_equal(line, expected);
}

/* The recorder is the one that was given, or its copy where others cannot reach that. */
static void assert_preloaded(struct watched_run *run, const char *before, const char *after)
{
    char line[256], given[512], copied[512];
    char folder[32];
    watched_read_line(run, line);
    snprintf(given, sizeof given, "LD_PRELOAD=%s%s%s 1", before, watched_recorder(), after);
    if (strcmp(line, given) == 0)
        return;
    const char *found = strstr(line, "/tmp/memtally-");
    assert_non_null(found);
    snprintf(folder, sizeof folder, "%.20s", found);
    snprintf(copied, sizeof copied, "LD_PRELOAD=%s%s/libmemtally-record.so%s 1", before, folder,
             after);
    assert_string_equal(line, copied);
}

/* As the kernel counts them; none on a machine without containers. */
static int filters_over_this(void)
{
    char line[256];
    int n = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Seccomp_filters: %d", &n) == 1)
            break;
    fclose(file);
    return n;
}

static void test_the_environment_has_the_recorder_before_what_was_preloaded(void **state)
{
    (void)state;
    static const char *const environment[] = {"LD_PRELOAD=libm.so.6",
                                              "MEMTALLY_RECORD_DIR=/nowhere",
                                              "MEMTALLY_RECORD_DEPTH=9", "KEPT=as it was", NULL};
    struct watched_run run;
    char expected[512];
    PREPARE(&run, watched_child(), "get=LD_PRELOAD", "get=MEMTALLY_RECORD_DIR",
            "get=MEMTALLY_RECORD_DEPTH", "get=MEMTALLY_RECORD_STACKS",
            "get=MEMTALLY_RECORD_SHARE_PPM", "get=MEMTALLY_RECORD_FILTERS", "get=KEPT");
    run.options.environment = (char **)(uintptr_t)environment;
    run.options.depth = MT_DEPTH_FULL;
    run.options.stacks = MT_STACKS_NONE;
    run.options.picture_share = 0.04;
    watched_start(&run);
    assert_preloaded(&run, "", ":libm.so.6");
    snprintf(expected, sizeof expected, "MEMTALLY_RECORD_DIR=%s 1", run.directory);
    assert_line(&run, expected);
    assert_line(&run, "MEMTALLY_RECORD_DEPTH=1 1");
    assert_line(&run, "MEMTALLY_RECORD_STACKS=2 1");
    assert_line(&run, "MEMTALLY_RECORD_SHARE_PPM=30000 1"); /* a quarter is the watcher's */
    snprintf(expected, sizeof expected, "MEMTALLY_RECORD_FILTERS=%d 1", filters_over_this());
    assert_line(&run, expected);
    assert_line(&run, "KEPT=as it was 1");
    watched_finish(&run);
}

/* The recorder's hooks find the engine's own functions, past those of the pretended devices. */
static void test_the_recorder_comes_after_the_pretended_devices_of_a_rehearsal(void **state)
{
    (void)state;
    static const char *const environment[] = {"LD_PRELOAD=libm.so.6",
                                              "MEMTALLY_REHEARSAL=/nowhere/account", NULL};
    struct watched_run run;
    PREPARE(&run, watched_child(), "get=LD_PRELOAD");
    run.options.environment = (char **)(uintptr_t)environment;
    watched_start(&run);
    assert_preloaded(&run, "libm.so.6:", "");
    watched_finish(&run);
}

static void test_without_a_recorder_the_environment_is_as_it_was(void **state)
{
    (void)state;
    static const char *const environment[] = {"MEMTALLY_RECORD_DIR=/nowhere", "KEPT=as it was",
                                              NULL};
    struct watched_run run;
    PREPARE(&run, watched_child(), "get=LD_PRELOAD", "get=MEMTALLY_RECORD_DIR", "get=KEPT");
    run.options.environment = (char **)(uintptr_t)environment;
    run.options.recorder_path = NULL;
    watched_start(&run);
    assert_line(&run, "LD_PRELOAD= 0");
    assert_line(&run, "MEMTALLY_RECORD_DIR=/nowhere 1");
    assert_line(&run, "KEPT=as it was 1");
    watched_finish(&run);
}

static void assert_refused(struct watched_run *run, int code)
{
    struct mt_run *made = NULL;
    struct mt_error error = {0};
    assert_int_equal(mt_run_start(&run->options, &made, &error), code);
    assert_int_equal(error.code, code);
    assert_true(strlen(error.text) > 0);
    assert_null(made);
    watched_close(run);
}

static void test_what_cannot_be_run_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    char path[128];
    struct watched_run run;
    PREPARE(&run, "no-such-program-anywhere", "exit=0");
    assert_refused(&run, MT_ENOTFOUND);
    assert_int_equal(access(run.directory, F_OK), -1);

    snprintf(path, sizeof path, "%s/not-executable", watched_folder);
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0 && close(fd) == 0);
    PREPARE(&run, path, "exit=0");
    assert_refused(&run, MT_EPERM);
    assert_int_equal(access(run.directory, F_OK), -1);

    PREPARE(&run, watched_child(), "exit=0");
    run.options.recorder_path = "/a path/with a space.so";
    assert_refused(&run, MT_EARG);
    assert_int_equal(access(run.directory, F_OK), -1);

    PREPARE(&run, watched_child(), "exit=0");
    run.options.directory = NULL;
    assert_refused(&run, MT_EARG);
}

/* The library has no environment of its own: the caller's PATH has env, the program's has not. */
static void test_a_program_is_looked_up_in_the_path_of_its_own_environment(void **state)
{
    (void)state;
    static char *nowhere[] = {(char *)(uintptr_t) "PATH=/nonexistent", NULL};
    struct watched_run run;
    PREPARE(&run, "env", "exit=0");
    run.options.environment = nowhere;
    assert_refused(&run, MT_ENOTFOUND);
}

static void test_a_folder_that_was_there_stays_when_the_program_is_not(void **state)
{
    (void)state;
    struct watched_run run;
    PREPARE(&run, "no-such-program-anywhere", "exit=0");
    assert_int_equal(mkdir(run.directory, 0700), 0);
    assert_refused(&run, MT_ENOTFOUND);
    assert_int_equal(rmdir(run.directory), 0); /* and is empty */
}

static void test_a_folder_that_holds_a_recording_is_refused(void **state)
{
    (void)state;
    struct watched_run run;
    PREPARE(&run, watched_child(), "exit=0");
    watched_start(&run);
    watched_finish(&run);
    struct mt_tally *before = watched_tally(&run, MT_MOMENT_EXIT, 0);
    assert_non_null(before);
    struct watched_run again;
    PREPARE(&again, watched_child(), "exit=0");
    assert_refused(&again, MT_EBUSY);
    struct mt_tally *after = watched_tally(&run, MT_MOMENT_EXIT, 0);
    assert_int_equal(after->places[0].total_resident_bytes, before->places[0].total_resident_bytes);
    mt_tally_destroy(before);
    mt_tally_destroy(after);
}

static void test_a_folder_that_cannot_be_made_is_refused(void **state)
{
    (void)state;
    struct watched_run run;
    PREPARE(&run, watched_child(), "exit=0");
    run.options.directory = "/proc/self/cmdline/r";
    assert_refused(&run, MT_ENOTFOUND);
    /* As root every folder can be written. */
    pid_t pid = fork();
    if (pid == 0) {
        struct mt_run *made;
        PREPARE(&run, watched_child(), "exit=0");
        if (getuid() == 0 && setuid(65534) < 0)
            _exit(2);
        run.options.directory = "/not-ours";
        _exit(mt_run_start(&run.options, &made, NULL) == MT_EPERM ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_the_programs_status_and_signal_are_passed_on(void **state)
{
    (void)state;
    struct watched_run run;
    PREPARE(&run, watched_child(), "exit=7");
    watched_start(&run);
    watched_finish(&run);
    assert_int_equal(run.result.exit_code, 7);
    assert_int_equal(run.result.signal, 0);
    watched_teardown(state);
    watched_setup(state);
    PREPARE(&run, watched_child(), "kill=15");
    watched_start(&run);
    watched_finish(&run);
    assert_int_equal(run.result.exit_code, 128 + SIGTERM);
    assert_int_equal(run.result.signal, SIGTERM);
}

static void test_a_signal_reaches_the_program(void **state)
{
    (void)state;
    struct watched_run run;
    PREPARE(&run, watched_child(), "say=ready", "hold");
    watched_start(&run);
    assert_line(&run, "ready");
    assert_int_equal(mt_run_signal(run.run, SIGINT), 0);
    watched_finish(&run);
    assert_int_equal(run.result.signal, SIGINT);
}

static void test_standard_error_goes_where_it_should(void **state)
{
    (void)state;
    struct watched_run run;
    char text[64] = "";
    PREPARE(&run, "sh", "-c", "echo to out; echo to err >&2");
    FILE *file = tmpfile();
    assert_non_null(file);
    run.options.stderr_fd = fileno(file);
    watched_start(&run);
    assert_line(&run, "to out");
    watched_finish(&run);
    rewind(file);
    assert_non_null(fgets(text, sizeof text, file));
    assert_string_equal(text, "to err\n");
    fclose(file);
}

/* A service that started us may have had SIGCHLD ignored; ends of children are then not told. */
static void test_an_ignored_sigchld_hides_nothing_and_stays_ignored(void **state)
{
    (void)state;
    struct watched_run run;
    struct sigaction action;
    int subreaper = 1;
    signal(SIGCHLD, SIG_IGN);
    PREPARE(&run, watched_child(), "exit=9");
    watched_start(&run);
    watched_finish(&run);
    assert_int_equal(run.result.exit_code, 9);
    assert_int_equal(sigaction(SIGCHLD, NULL, &action), 0);
    assert_ptr_equal(action.sa_handler, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(prctl(PR_GET_CHILD_SUBREAPER, &subreaper), 0);
    assert_int_equal(subreaper, 0);
}

static void test_children_that_were_there_before_are_left_alone(void **state)
{
    (void)state;
    struct watched_run run;
    int status;
    pid_t sleeping = fork();
    if (sleeping == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when the test fails */
        pause();
        _exit(0);
    }
    pid_t ended = fork();
    if (ended == 0)
        _exit(42);
    PREPARE(&run, watched_child(), "say=ready", "hold");
    watched_start(&run);
    assert_line(&run, "ready");
    struct mt_run_status seen;
    assert_int_equal(mt_run_poll(run.run, 0, &seen, NULL), 0);
    assert_int_equal(seen.n_processes, 1);
    mt_run_abandon(run.run);
    close(run.input);
    close(run.output);
    assert_int_equal(waitpid(ended, &status, 0), ended);
    assert_int_equal(WEXITSTATUS(status), 42);
    assert_int_equal(waitpid(sleeping, &status, WNOHANG), 0); /* lives */
    kill(sleeping, SIGKILL);
    assert_int_equal(waitpid(sleeping, &status, 0), sleeping);
}

static void test_abandoning_a_run_ends_all_of_it(void **state)
{
    (void)state;
    struct watched_run run;
    char line[256];
    PREPARE(&run, watched_child(), "fork", "fork", "leave", "pid", "hold");
    watched_start(&run);
    watched_read_line(&run, line);
    int pid = atoi(line);
    assert_int_equal(kill(pid, 0), 0);
    mt_run_abandon(run.run);
    assert_int_equal(kill(pid, 0), -1);
    close(run.input);
    close(run.output);
    mt_run_abandon(NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, watched_setup, watched_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_the_environment_has_the_recorder_before_what_was_preloaded),
        TEST(test_the_recorder_comes_after_the_pretended_devices_of_a_rehearsal),
        TEST(test_without_a_recorder_the_environment_is_as_it_was),
        TEST(test_what_cannot_be_run_is_refused_and_leaves_nothing),
        TEST(test_a_program_is_looked_up_in_the_path_of_its_own_environment),
        TEST(test_a_folder_that_was_there_stays_when_the_program_is_not),
        TEST(test_a_folder_that_holds_a_recording_is_refused),
        TEST(test_a_folder_that_cannot_be_made_is_refused),
        TEST(test_the_programs_status_and_signal_are_passed_on),
        TEST(test_a_signal_reaches_the_program),
        TEST(test_standard_error_goes_where_it_should),
        TEST(test_an_ignored_sigchld_hides_nothing_and_stays_ignored),
        TEST(test_children_that_were_there_before_are_left_alone),
        TEST(test_abandoning_a_run_ends_all_of_it),
    };
    return RUN_TESTS(tests);
}
