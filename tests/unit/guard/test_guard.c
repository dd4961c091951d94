/* SPDX-License-Identifier: MIT */
/* A guarded program that is this file itself, in another life. */
#include "tests/support/unit.h"

#include <memtally/guard.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/host.h"

#define MIB ((size_t)1 << 20)

extern char **environ;

static int is_signalled(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGUSR1);
}

/* Takes more than it may have, page by page, and two MiB more once it has its signal: the kernel
 * looks whether a group passed a mark at every 128th page of a processor. Then it stands still. */
_Noreturn static void eat(void)
{
    volatile char *block =
        mmap(NULL, 400 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t n_bytes = 398 * MIB;
    int is_told = 0;
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    for (size_t i = 0; block != MAP_FAILED && i < n_bytes; i += 4096) {
        block[i] = 1;
        if (i % MIB == 0 && !is_told && (is_told = is_signalled()))
            n_bytes = i + 2 * MIB;
    }
    while (!is_told)
        sigwait(&usr1, &is_told);
    raise(SIGSTOP);
    _exit(3);
}

static int stands_still(pid_t pid)
{
    struct mt_host_os os;
    struct mt_process process;
    mt_host_os_init(&os);
    return mt_process_read(&os, pid, &process, NULL) == 0 && process.state == 'T';
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
    do {
        mt_guard_wait(guard, &status);
        if (!stands_still(mt_guard_pid(guard)))
            continue;
        mt_guard_wait(guard, &status); /* knows what the kernel told before */
        kill(mt_guard_pid(guard), SIGCONT);
    } while (status.running);
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
    assert_true(result.n_alarms <= result.n_looks);
    /* The kernel counts ahead for each processor: a mark that is passed so may be taken back. */
    for (int i = 0; i < 5 && result.n_alarms == 0; i++)
        result = guarded("eat", 160 * MIB);
    assert_true(result.n_alarms > 0);
}

static void test_a_program_that_ends_is_seen_to(void **state)
{
    (void)state;
    struct mt_guard_result result = guarded("end", 1024 * MIB);
    assert_int_equal(result.job.exit_code, 5);
    assert_int_equal(result.n_acts, 0);
}

/* ---- standing still ---- */

#define SENT 64

static struct {
    pid_t pid;
    int number;
} sent[SENT];
static size_t n_sent;

/* In the place of libc's: what a guard sends is written down. */
int kill(pid_t pid, int number)
{
    if (n_sent < SENT) {
        sent[n_sent].pid = pid;
        sent[n_sent++].number = number;
    }
    return (int)syscall(SYS_kill, pid, number);
}

/* Where among what was sent a signal comes first, from `at` on; SENT: nowhere. */
static size_t place_of(size_t at, pid_t pid, int number)
{
    while (at < n_sent && !(sent[at].pid == pid && sent[at].number == number))
        at++;
    return at < n_sent ? at : SENT;
}

static void wait_until(pid_t pid, int stands)
{
    while (stands_still(pid) != stands)
        usleep(1000);
}

/* A program that took memory, and a child of its own, which has none. Both wait. */
struct family {
    pid_t parent, child;
};

static struct family start_family(void)
{
    struct family family = {0};
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    family.parent = fork();
    if (family.parent == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        char *block = malloc(64 * MIB);
        memset(block, 1, 64 * MIB);
        if (write(pipes[1], &child, sizeof child) != sizeof child)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(pipes[0], &family.child, sizeof family.child), sizeof family.child);
    close(pipes[0]);
    close(pipes[1]);
    return family;
}

static struct mt_guard *guard_family(const struct family *family, uint64_t freeze_ns)
{
    struct mt_guard_options options = {.pid = family->parent,
                                       .limit_bytes = 32 * MIB,
                                       .freeze_ns = freeze_ns,
                                       .end_ns = 600000000000u};
    struct mt_guard *guard;
    n_sent = 0;
    assert_int_equal(mt_guard_start(&options, &guard, NULL), 0);
    return guard;
}

static void wait_for_acts(struct mt_guard *guard, size_t n)
{
    struct mt_guard_status status;
    do
        mt_guard_wait(guard, &status);
    while (status.n_acts < n);
}

static void end_family(const struct family *family)
{
    int status;
    kill(family->child, SIGKILL);
    kill(family->parent, SIGKILL);
    assert_int_equal(waitpid(family->parent, &status, 0), family->parent);
}

static void test_all_that_stand_still_go_on_when_their_guard_ends(void **state)
{
    (void)state;
    struct family family = start_family();
    struct mt_guard_result result;
    struct mt_guard *guard = guard_family(&family, 600000000000u);
    wait_for_acts(guard, 1);
    wait_until(family.parent, 1);
    wait_until(family.child, 1);
    mt_guard_finish(guard, &result);
    assert_int_equal(result.acts[0].step, MT_GUARD_FREEZE);
    wait_until(family.parent, 0);
    wait_until(family.child, 0);
    end_family(&family);
}

static void test_who_stood_still_has_its_signal_before_it_goes_on(void **state)
{
    (void)state;
    struct family family = start_family();
    struct mt_guard_result result;
    struct mt_guard *guard = guard_family(&family, 1);
    wait_for_acts(guard, 2);
    size_t stopped = place_of(0, family.parent, SIGSTOP);
    size_t asked = place_of(stopped, family.parent, SIGTERM);
    assert_true(place_of(asked, family.parent, SIGCONT) < SENT);
    assert_int_equal(place_of(0, family.parent, SIGCONT), place_of(asked, family.parent, SIGCONT));
    assert_true(place_of(asked, family.child, SIGCONT) < SENT);
    mt_guard_finish(guard, &result);
    end_family(&family);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_kernel_says_when_a_group_comes_near_its_limit),
        cmocka_unit_test(test_a_program_that_ends_is_seen_to),
        cmocka_unit_test(test_all_that_stand_still_go_on_when_their_guard_ends),
        cmocka_unit_test(test_who_stood_still_has_its_signal_before_it_goes_on),
    };
    if (argc > 1 && strcmp(argv[1], "eat") == 0)
        eat();
    if (argc > 1)
        return 5;
    return RUN_TESTS(tests);
}
