/* SPDX-License-Identifier: MIT */
/* Allocations below known call chains. Compiled once with frame pointers and once without. */
#include <memtally/scope.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "recorder/child.h"

#define NOINLINE __attribute__((noinline))
#define FIBER    ((size_t)64 << 10)

/* Each level says where it returns to; the innermost allocates. */
static void *returns[4];

NOINLINE static void innermost(size_t size)
{
    returns[0] = __builtin_return_address(0);
    keep(malloc(size));
    __asm__ volatile("");
}

NOINLINE static void middle(size_t size)
{
    returns[1] = __builtin_return_address(0);
    innermost(size);
    __asm__ volatile("");
}

NOINLINE static void outer(size_t size)
{
    returns[2] = __builtin_return_address(0);
    middle(size);
    __asm__ volatile("");
}

static void say_returns(const char *where)
{
    say("%s=%#lx %#lx %#lx\n", where, (unsigned long)(uintptr_t)returns[0],
        (unsigned long)(uintptr_t)returns[1], (unsigned long)(uintptr_t)returns[2]);
}

static void *on_thread(void *unused)
{
    outer(300002);
    say_returns("thread");
    return unused;
}

static int stacks(int argc, char **argv)
{
    pthread_t thread;
    (void)argc;
    (void)argv;
    outer(300001);
    say_returns("main");
    MUST(pthread_create(&thread, NULL, on_thread, NULL) == 0);
    pthread_join(thread, NULL);
    return 0;
}

static ucontext_t home, fiber;

static void on_fiber(void)
{
    outer(300003);
    swapcontext(&fiber, &home);
    outer(300004);
}

static void *guarded(void)
{
    char *area = mmap(NULL, FIBER + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(area != MAP_FAILED);
    MUST(mprotect(area + 4096, FIBER, PROT_READ | PROT_WRITE) == 0);
    return area + 4096;
}

/* fibers: allocations on stacks that libc knows nothing of, between unreadable pages. */
static int fibers(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    for (int i = 0; i < 50; i++) {
        getcontext(&fiber);
        fiber.uc_stack.ss_sp = guarded();
        fiber.uc_stack.ss_size = FIBER;
        fiber.uc_link = &home;
        makecontext(&fiber, on_fiber, 0);
        swapcontext(&home, &fiber);
        outer(300005);
        swapcontext(&home, &fiber);
    }
    say("done\n");
    return 0;
}

static void in_handler(int signal)
{
    (void)signal;
    outer(300006);
}

/* altstack: allocations in a handler on its own stack. */
static int altstack(int argc, char **argv)
{
    stack_t stack = {.ss_sp = guarded(), .ss_size = FIBER};
    struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK};
    (void)argc;
    (void)argv;
    MUST(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    for (int i = 0; i < 50; i++)
        raise(SIGUSR1);
    say("done\n");
    return 0;
}

NOINLINE static size_t deep(int level)
{
    size_t below = level ? deep(level - 1) : (size_t)(uintptr_t)keep(malloc(300007));
    __asm__ volatile("");
    return below + 1;
}

/* recursion: more frames than a stack holds. */
static int recursion(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return deep(500) == 0;
}

const struct command stack_commands[] = {{"stacks", stacks},
                                         {"fibers", fibers},
                                         {"altstack", altstack},
                                         {"recursion", recursion},
                                         {NULL, NULL}};
