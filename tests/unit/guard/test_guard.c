/* SPDX-License-Identifier: MIT */
/* A guarded program that is this file itself, in another life. */
#include "tests/support/unit.h"

#include <memtally/guard.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

extern char **environ;

static int is_signalled(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGUSR1);
}

/* Takes more than it may have, page by page, and two MiB more once it has its signal: the kernel
 * looks whether a group passed a mark at every 128th page of a processor. */
_Noreturn static void eat(void)
{
    volatile char *block = malloc(400 * MIB);
    size_t n_bytes = 398 * MIB;
    int is_told = 0;
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    for (size_t i = 0; block && i < n_bytes; i += 4096) {
        block[i] = 1;
        if (i % MIB == 0 && !is_told && (is_told = is_signalled()))
            n_bytes = i + 2 * MIB;
    }
    while (!is_told)
        sigwait(&usr1, &is_told);
    _exit(3);
}

static struct mt_guard_result guarded(const char *way, uint64_t limit_bytes)
{
    char self[] = "/proc/self/exe";
    char *argv[] = {self, (char *)way, NULL};
    struct mt_guard_options options = {.argv = argv,
                                       .environment = environ,
                                       .limit_bytes = limit_bytes,
                                       .signal = SIGUSR1,
                                       .grace_ns = 600000000000u};
    struct mt_guard *guard;
    struct mt_guard_status status;
    struct mt_guard_result result;
    assert_int_equal(mt_guard_start(&options, &guard, NULL), 0);
    do
        mt_guard_wait(guard, &status);
    while (status.running);
    mt_guard_finish(guard, &result);
    return result;
}

static void test_the_kernel_says_when_a_group_comes_near_its_limit(void **state)
{
    (void)state;
    struct mt_guard_result result = guarded("eat", 160 * MIB);
    if (!result.is_held) { /* nothing lets it wait at its limit */
        print_message("# no group could be made: whether the kernel's word counts was not tried\n");
        assert_true(result.n_acts > 0);
        return;
    }
    assert_int_equal(result.job.exit_code, 3);
    assert_int_equal(result.n_acts, 1);
    assert_int_equal(result.acts[0].step, MT_GUARD_SIGNAL);
    assert_true(result.n_alarms > 0 && result.n_alarms <= result.n_looks);
}

static void test_a_program_that_ends_is_seen_to(void **state)
{
    (void)state;
    struct mt_guard_result result = guarded("end", 1024 * MIB);
    assert_int_equal(result.job.exit_code, 5);
    assert_int_equal(result.n_acts, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_kernel_says_when_a_group_comes_near_its_limit),
        cmocka_unit_test(test_a_program_that_ends_is_seen_to),
    };
    if (argc > 1 && strcmp(argv[1], "eat") == 0)
        eat();
    if (argc > 1)
        return 5;
    return RUN_TESTS(tests);
}
