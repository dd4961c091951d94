/* SPDX-License-Identifier: MIT */
/* How the child makes other processes, and how it ends. */
#include <memtally/scope.h>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/recorder/sys.h"
#include "recorder/child.h"

#define OF_PARENT 700001
#define OF_CHILD  700002
#define AFTER     700003
#define SAID      20001 /* in libc's heap */

extern char **environ;

static int wait_for(pid_t pid)
{
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid);
    return status;
}

/* A parent and its child say the same of the same block, beside which each has another. */
static void say_of_a_block(void)
{
    static void *block;
    if (!block)
        block = keep(malloc(SAID));
    keep(malloc(SAID + 1));
    mt_label_block(block, SAID, MT_CATEGORY_WEIGHTS, "block");
}

/* In the child: one block of its own, and one of its parent's freed. */
static void live_as_child(void *inherited)
{
    free(inherited);
    say_of_a_block();
    keep(malloc(OF_CHILD));
    _exit(5);
}

static void *fork_here(void *unused)
{
    void *block = keep(malloc(OF_PARENT));
    say_of_a_block();
    (void)unused;
    pid_t pid = fork();
    if (pid == 0)
        live_as_child(block);
    say("child=%d\n", (int)pid);
    MUST(wait_for(pid) == 5 << 8);
    keep(malloc(AFTER));
    return NULL;
}

static int forks(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    fork_here(NULL);
    return 0;
}

static int forks_in_thread(int argc, char **argv)
{
    pthread_t thread;
    (void)argc;
    (void)argv;
    MUST(pthread_create(&thread, NULL, fork_here, NULL) == 0);
    pthread_join(thread, NULL);
    return 0;
}

/* clones [raw]: a fork that libc's handlers do not see; raw: nor does libc. */
static int clones(int argc, char **argv)
{
    void *block = keep(malloc(OF_PARENT));
    int is_raw = argc > 1 && strcmp(argv[1], "raw") == 0;
    say_of_a_block();
    pid_t pid = is_raw ? (pid_t)MT_SYS6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0)
                       : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        live_as_child(block);
    say("child=%d\n", (int)pid);
    MUST(wait_for(pid) == 5 << 8);
    keep(malloc(AFTER));
    return 0;
}

/* vforks: children in the parent's memory, one that cannot exec and one that does. */
static int vforks(int argc, char **argv)
{
    char *const nothing[] = {argv[argc - 1], (char[]){"nothing"}, NULL};
    pid_t pid = vfork();
    if (pid == 0) {
        free(keep(malloc(OF_CHILD)));
        execv("/nowhere/at/all", nothing);
        _exit(127);
    }
    MUST(wait_for(pid) == 127 << 8);
    pid = vfork();
    if (pid == 0) {
        execv(nothing[0], nothing);
        _exit(127);
    }
    say("child=%d\n", (int)pid);
    MUST(wait_for(pid) == 0);
    mt_mark("after");
    keep(malloc(AFTER));
    return 0;
}

static int spawns(int argc, char **argv)
{
    char *const nothing[] = {argv[argc - 1], (char[]){"nothing"}, NULL};
    pid_t pid;
    MUST(posix_spawn(&pid, nothing[0], NULL, NULL, nothing, environ) == 0);
    say("child=%d\n", (int)pid);
    MUST(wait_for(pid) == 0);
    keep(malloc(AFTER));
    return 0;
}

static int execs(int argc, char **argv)
{
    char *const nothing[] = {argv[argc - 1], (char[]){"nothing"}, NULL};
    keep(malloc(OF_PARENT));
    execv(nothing[0], nothing);
    return 1;
}

/* inherits: a child says what it has mapped of recordings, before it allocates anything. */
static int inherits(int argc, char **argv)
{
    static char text[1 << 20];
    (void)argc;
    (void)argv;
    for (int i = 0; i < 3000; i++)
        free(keep(malloc(100000)));
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open("/proc/self/maps", O_RDONLY);
        size_t length = 0;
        for (ssize_t got; (got = read(fd, text + length, sizeof text - 1 - length)) > 0;)
            length += (size_t)got;
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            if (strstr(line, ".mtr"))
                say("%s\n", line);
        raise(SIGKILL);
    }
    MUST(wait_for(pid) == SIGKILL);
    return 0;
}

/* bomb N: many children at once, each of which allocates. */
static int bomb(int argc, char **argv)
{
    long n = number(argc, argv, 1, 50);
    for (long i = 0; i < n; i++) {
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0) {
            keep(malloc(OF_CHILD));
            _exit(0);
        }
    }
    for (long i = 0; i < n; i++) {
        int status;
        MUST(wait(&status) > 0 && status == 0);
    }
    return 0;
}

static void *exit_here(void *unused)
{
    (void)unused;
    exit(7);
}

static int ends_in_thread(void)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, exit_here, NULL) == 0);
    pthread_join(thread, NULL);
    return 1;
}

static int ends_by_pointer(void)
{
    volatile uintptr_t nowhere = 8;
    return *(volatile int *)nowhere;
}

/* ends HOW */
static int ends(int argc, char **argv)
{
    const char *how = argv[argc - 1];
    keep(malloc(OF_PARENT));
    if (strcmp(how, "return") == 0)
        return 7;
    if (strcmp(how, "exit") == 0)
        exit(7);
    if (strcmp(how, "_exit") == 0)
        _exit(7);
    if (strcmp(how, "_Exit") == 0)
        _Exit(7);
    if (strcmp(how, "quick_exit") == 0)
        quick_exit(7);
    if (strcmp(how, "thread") == 0)
        return ends_in_thread();
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "pointer") == 0)
        return ends_by_pointer();
    return 96;
}

static void allocate_in_handler(int signal)
{
    (void)signal;
    free(keep(malloc(333)));
}

/* signals: handlers that allocate, many times, on top of whatever runs. */
static int signals(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = allocate_in_handler};
    struct itimerspec often = {{0, 200000}, {0, 200000}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    timer_t timer;
    (void)argc;
    (void)argv;
    sigaction(SIGPROF, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    MUST(timer_settime(timer, 0, &often, NULL) == 0);
    raise(SIGSEGV);
    for (long i = 0; i < 300; i++) {
        char *volatile text = NULL;
        sigset_t mask, before;
        sigfillset(&mask);
        sigprocmask(SIG_BLOCK, &mask, &before); /* malloc itself is not to be interrupted */
        text = keep(malloc(100000));
        free(text);
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    for (long i = 0; i < 2000; i++) /* but the recorder may be */
        mt_mark("interrupted");
    say("done\n");
    return 0;
}

/* An alarm for this process, some time from now. */
static void set_alarm(long us)
{
    const struct itimerval once = {.it_value = {.tv_usec = us}};
    MUST(setitimer(ITIMER_REAL, &once, NULL) == 0);
}

/* Most of its time is the recorder's. */
static void call_until_stopped(void)
{
    for (;;) {
        mt_mark("interrupted");
        char *area = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(area != MAP_FAILED);
        area[0] = 1;
        munmap(area, 65536);
    }
}

static pid_t vfork_to_die(long us)
{
    pid_t pid = vfork();
    if (pid == 0) {
        set_alarm(us);
        call_until_stopped();
    }
    return pid;
}

/* dies_in_vfork: children that are killed in their parent's memory. */
static int dies_in_vfork(int argc, char **argv)
{
    for (long i = 0; i < number(argc, argv, 1, 200); i++) {
        pid_t pid = vfork_to_die(50 + i % 100);
        mt_mark("after a child"); /* it is there until it is waited for */
        MUST(wait_for(pid) == SIGALRM);
    }
    mt_mark("after");
    keep(malloc(AFTER));
    return 0;
}

static sigjmp_buf before_call;

static void leave_call(int signal)
{
    (void)signal;
    siglongjmp(before_call, 1);
}

/* leaves_calls: by siglongjmp() from a handler. */
static int leaves_calls(int argc, char **argv)
{
    const struct sigaction action = {.sa_handler = leave_call};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    for (volatile long i = 0; i < number(argc, argv, 1, 200); i++)
        if (!sigsetjmp(before_call, 1)) {
            set_alarm(50 + i % 100);
            call_until_stopped();
        }
    mt_mark("after");
    keep(malloc(AFTER));
    return 0;
}

static void mark_in_handler(int signal)
{
    (void)signal;
    mt_mark("handler");
}

/* handles_above: on a stack for signals that lies above the frames that they interrupt. */
static int handles_above(int argc, char **argv)
{
    char stack[65536];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    const struct sigaction action = {.sa_handler = mark_in_handler, .sa_flags = SA_ONSTACK};
    MUST(sigaltstack(&own, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    for (long i = 0; i < number(argc, argv, 1, 300); i++) {
        set_alarm(20 + i % 50);
        for (long k = 0; k < 200; k++)
            mt_mark("interrupted");
    }
    mt_mark("after");
    keep(malloc(AFTER));
    return 0;
}

static pid_t fork_by_call(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

extern pid_t _Fork(void) __attribute__((weak)); /* since glibc 2.34 */

static volatile sig_atomic_t n_forks, is_forked, harm; /* how a child ended that should not have */
static pid_t (*fork_within)(void) = fork;

/* The child returns from the handler and goes on with what was interrupted. */
static void fork_in_handler(int signal)
{
    (void)signal;
    if (is_forked)
        return;
    pid_t pid = fork_within();
    if (pid == 0) {
        is_forked = 1;
        return;
    }
    n_forks++;
    int status = wait_for(pid);
    if (status != 7 << 8)
        harm = status;
}

/* forks_within HOW: forks in a handler that comes upon the recorder at work. */
static int forks_within(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
    if (argc > 1 && strcmp(argv[1], "call") == 0)
        fork_within = fork_by_call;
    else if (argc > 1 && strcmp(argv[1], "_Fork") == 0 && _Fork)
        fork_within = _Fork;
    sigaction(SIGALRM, &action, NULL);
    while (n_forks < 200) {
        int before = n_forks;
        set_alarm(20 + before % 50);
        while (n_forks == before && !is_forked)
            mt_mark("interrupted");
        if (is_forked) {
            free(keep(malloc(OF_CHILD)));
            _exit(7);
        }
    }
    if (harm)
        say("a child ended with status %x\n", (unsigned)harm);
    MUST(!harm);
    mt_mark("after");
    keep(malloc(AFTER));
    return 0;
}

const struct command process_commands[] = {
    {"forks_within", forks_within},
    {"dies_in_vfork", dies_in_vfork},
    {"leaves_calls", leaves_calls},
    {"handles_above", handles_above},
    {"forks", forks},
    {"forks_in_thread", forks_in_thread},
    {"clones", clones},
    {"vforks", vforks},
    {"spawns", spawns},
    {"execs", execs},
    {"bomb", bomb},
    {"ends", ends},
    {"signals", signals},
    {"inherits", inherits},
    {NULL, NULL},
};
