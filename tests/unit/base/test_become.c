/* SPDX-License-Identifier: MIT */
/* A child that becomes another program. */
#include "tests/support/unit.h"

#include "base/become.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static int run_shell(void *context)
{
    char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, context, NULL};
    execv("/bin/sh", argv);
    return errno;
}

static int run_nothing(void *context)
{
    char *const argv[] = {context, NULL};
    execv(context, argv);
    return errno;
}

static int refuse(void *context)
{
    return *(const int *)context;
}

static void test_the_child_is_the_program(void **state)
{
    int how;
    (void)state;
    pid_t pid = mt_become(run_shell, (char[]){"exit 7"});
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 7);
}

static void test_a_program_that_is_not_there_leaves_no_child(void **state)
{
    (void)state;
    assert_int_equal(mt_become(run_nothing, (char[]){"/nowhere/at/all"}), -ENOENT);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void test_a_child_may_refuse(void **state)
{
    int reason = EDOM;
    (void)state;
    assert_int_equal(mt_become(refuse, &reason), -EDOM);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static volatile sig_atomic_t handled;

static void handle(int signal)
{
    (void)signal;
    handled = 1;
}

static int raise_and_refuse(void *context)
{
    (void)context;
    raise(SIGUSR1);
    return EDOM;
}

/* The child has its parent's memory, but not its handlers; the parent has its signals again. */
static void test_no_handler_runs_in_the_child(void **state)
{
    const struct sigaction action = {.sa_handler = handle};
    sigset_t signals;
    int how;
    (void)state;
    sigaction(SIGUSR1, &action, NULL);
    pid_t pid = mt_become(raise_and_refuse, NULL);
    assert_true(pid > 0); /* it was killed before it could say anything */
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGUSR1);
    assert_int_equal(handled, 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &signals), 0);
    assert_false(sigismember(&signals, SIGUSR1));
    raise(SIGUSR1);
    assert_int_equal(handled, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_child_is_the_program),
        cmocka_unit_test(test_a_program_that_is_not_there_leaves_no_child),
        cmocka_unit_test(test_a_child_may_refuse),
        cmocka_unit_test(test_no_handler_runs_in_the_child),
    };
    return RUN_TESTS(tests);
}
