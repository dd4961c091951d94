/* SPDX-License-Identifier: MIT */
/* Threads that allocate, free each other's blocks, come, go, and are cancelled. */
#include <memtally/scope.h>

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/child.h"

#define MARKED  1234 /* a size that nothing else asks for */
#define MOST    64
#define PLACES  64
#define STACK_B 65536

static void *places[PLACES];
static long per_thread;

static void *hand_over(void *argument)
{
    uint64_t random = 0x9e3779b97f4a7c15u * ((uintptr_t)argument + 1);
    for (long i = 0; i < per_thread; i++) {
        void *block = keep(malloc(MARKED));
        memset(block, 1, MARKED);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        free(__atomic_exchange_n(&places[random % PLACES], block, __ATOMIC_ACQ_REL));
    }
    return NULL;
}

/* handover THREADS N: each block is freed by whatever thread finds it. */
static int handover(int argc, char **argv)
{
    pthread_t threads[MOST];
    long n = number(argc, argv, 1, 4);
    per_thread = number(argc, argv, 2, 1000);
    for (long i = 0; i < n; i++)
        MUST(pthread_create(&threads[i], NULL, hand_over, (void *)(uintptr_t)i) == 0);
    for (long i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    for (long i = 0; i < PLACES; i++)
        free(places[i]);
    say("done\n");
    return 0;
}

/* forever THREADS: as handover, until it is killed. */
static int forever(int argc, char **argv)
{
    pthread_t thread;
    long n = number(argc, argv, 1, 4);
    per_thread = INT64_MAX;
    for (long i = 1; i < n; i++)
        MUST(pthread_create(&thread, NULL, hand_over, (void *)(uintptr_t)i) == 0);
    say("ready\n");
    hand_over(NULL);
    return 0;
}

static void *small_and_large(void *argument)
{
    struct {
        unsigned long allocs, bytes;
    } *sum = argument;
    for (int i = 0; i < 100; i++) {
        void *block = keep(malloc(100));
        __atomic_fetch_add(&sum->allocs, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&sum->bytes, malloc_usable_size(block), __ATOMIC_RELAXED);
        if (i % 2)
            free(block);
    }
    free(keep(malloc(MARKED * 100)));
    return NULL;
}

/* turns N: one thread after the other, so that states are used again. */
static int turns(int argc, char **argv)
{
    struct {
        unsigned long allocs, bytes;
    } sum = {0, 0};
    long n = number(argc, argv, 1, 100);
    for (long i = 0; i < n; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, small_and_large, &sum) == 0);
        pthread_join(thread, NULL);
    }
    say("allocs=%lu alloc_bytes=%lu\n", sum.allocs, sum.bytes);
    return 0;
}

static int gone;

static void *detached_work(void *argument)
{
    free(keep(malloc(MARKED)));
    (void)argument;
    __atomic_fetch_add(&gone, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Those that are about to end count: only the kernel knows when one is gone. */
static long count_threads(void)
{
    struct stat status;
    MUST(stat("/proc/self/task", &status) == 0);
    return (long)status.st_nlink - 2;
}

/* detached N: threads with big stacks, which libc frees when the next ones end. */
static int detached(int argc, char **argv)
{
    long n = number(argc, argv, 1, 200);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, (size_t)32 << 20); /* two fill libc's cache */
    for (long i = 0; i < n; i++) {
        pthread_t thread;
        while (pthread_create(&thread, &attributes, detached_work, NULL) != 0)
            sched_yield();
        while (count_threads() > 9)
            sched_yield();
    }
    while (__atomic_load_n(&gone, __ATOMIC_ACQUIRE) < n)
        sched_yield();
    return 0;
}

static void *until_cancelled(void *argument)
{
    long *rounds = argument;
    while (__atomic_fetch_add(rounds, 1, __ATOMIC_RELEASE) >= 0) {
        free(keep(malloc(MARKED)));
        pthread_testcancel();
    }
    return NULL;
}

/* cancel N: threads that are cancelled between a malloc and the next. */
static int cancel(int argc, char **argv)
{
    long n = number(argc, argv, 1, 20);
    for (long i = 0; i < n; i++) {
        pthread_t thread;
        void *result;
        long rounds = 0;
        MUST(pthread_create(&thread, NULL, until_cancelled, &rounds) == 0);
        while (__atomic_load_n(&rounds, __ATOMIC_ACQUIRE) < 2)
            sched_yield();
        pthread_cancel(thread);
        MUST(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    return 0;
}

static void free_late(void *block)
{
    free(block);
}

static void *with_keys(void *argument)
{
    const pthread_key_t *keys = argument;
    for (int i = 0; i < 8; i++)
        pthread_setspecific(keys[i], keep(malloc(MARKED)));
    return NULL;
}

/* keys N: blocks that are freed by the destructors of a thread's keys. */
static int keys(int argc, char **argv)
{
    pthread_key_t made[8];
    long n = number(argc, argv, 1, 20);
    for (int i = 0; i < 8; i++)
        MUST(pthread_key_create(&made[i], free_late) == 0);
    for (long i = 0; i < n; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, with_keys, made) == 0);
        pthread_join(thread, NULL);
    }
    return 0;
}

static void *in_scope(void *argument)
{
    pthread_barrier_t *barrier = argument;
    mt_scope_begin(MT_CATEGORY_KV_CACHE, "of the thread");
    pthread_barrier_wait(barrier);
    void *block = keep(malloc(200001));
    pthread_barrier_wait(barrier);
    mt_scope_end();
    return block;
}

/* scoped: a thread has a scope while the main thread, without one, allocates too. */
static int scoped(int argc, char **argv)
{
    pthread_barrier_t barrier;
    pthread_t thread;
    (void)argc;
    (void)argv;
    pthread_barrier_init(&barrier, NULL, 2);
    MUST(pthread_create(&thread, NULL, in_scope, &barrier) == 0);
    pthread_barrier_wait(&barrier);
    keep(malloc(200002));
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    return 0;
}

const struct command thread_commands[] = {
    {"handover", handover}, {"forever", forever}, {"turns", turns},   {"detached", detached},
    {"cancel", cancel},     {"keys", keys},       {"scoped", scoped}, {NULL, NULL},
};
