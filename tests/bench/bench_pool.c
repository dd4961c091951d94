/* SPDX-License-Identifier: MIT */
/* What a pool's calls cost beside malloc()'s: bench_pool TRACE, which it replays with each page
 * touched. Behind a figure stands its goal, and whether it was met in this run. LIBRARY in the
 * environment is the shared library, as a program has it that is not linked with the objects,
 * EMPTY_LIBRARY that of empty.c. */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <memtally/error.h>
#include <memtally/pool.h>

#include "pool/front.h"
#include "pool_trace.h"

#define MOST_AT_ONCE 8
#define ON_WAY       1024u  /* blocks that one thread has for another to give back */
#define PASSED       50000u /* in a round */
#define THREADS      8
#define ROUNDS       200 /* of a trace whose requests are timed */

static double clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static double now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static void judge(const char *what, double value, double goal, const char *unit)
{
    printf("%-52s %10.3g %s, goal %g: %s\n", what, value, unit, goal,
           value <= goal ? "met" : "missed");
    fflush(stdout);
}

static struct mt_pool *make_pool(const struct mt_pool_backend *backend)
{
    struct mt_pool *pool;
    if (mt_pool_create(backend, NULL, &pool, NULL) != MT_OK)
        exit(2);
    return pool;
}

enum giver { NOTHING, NOTHING_SHARED, POOL, INLINE, MALLOC, LIBRARY };

/* Two calls that do nothing: no allocator costs less that is not inlined. */
static __attribute__((noinline)) void empty_take(uint64_t bytes, uint64_t *address)
{
    *address = bytes;
    __asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void empty_give(uint64_t address)
{
    __asm__ volatile("" ::"r"(address) : "memory");
}

/* What a shared library has: the pool's functions and a pool of its own, or those of empty.c. */
struct shared {
    int (*allocate)(struct mt_pool *pool, uint64_t bytes, uint64_t stream, uint64_t *address);
    int (*give)(struct mt_pool *pool, uint64_t address);
    struct mt_pool *pool;
};
static struct shared library, empty_library;

static void *open_library(const char *variable, struct shared *shared, const char *allocate,
                          const char *give)
{
    const char *path = getenv(variable);
    void *opened = path ? dlopen(path, RTLD_NOW) : NULL;
    if (!opened) {
        fprintf(stderr, "%s names no shared library\n", variable);
        exit(2);
    }
    *(void **)&shared->allocate = dlsym(opened, allocate);
    *(void **)&shared->give = dlsym(opened, give);
    return opened;
}

static void open_libraries(void)
{
    const struct mt_pool_backend *(*backend)(void);
    int (*create)(const struct mt_pool_backend *, const struct mt_pool_options *, struct mt_pool **,
                  struct mt_error *);
    void *opened = open_library("LIBRARY", &library, "mt_pool_allocate", "mt_pool_free");
    open_library("EMPTY_LIBRARY", &empty_library, "empty_take", "empty_give");
    *(void **)&backend = dlsym(opened, "mt_pool_host_backend");
    *(void **)&create = dlsym(opened, "mt_pool_create");
    if (create(backend(), NULL, &library.pool, NULL) != MT_OK)
        exit(2);
}

static inline void take(struct mt_pool *pool, enum giver giver, uint64_t bytes, uint64_t *address)
{
    if (giver == NOTHING)
        empty_take(bytes, address);
    else if (giver == NOTHING_SHARED)
        empty_library.allocate(NULL, bytes, 0, address);
    else if (giver == MALLOC)
        *address = (uint64_t)(uintptr_t)malloc((size_t)bytes);
    else if (giver == LIBRARY)
        library.allocate(library.pool, bytes, 0, address);
    else if (giver == POOL || !mt_pool_front_pop_small(pool, bytes, address))
        mt_pool_allocate(pool, bytes, 0, address);
}

static inline void give(struct mt_pool *pool, enum giver giver, uint64_t address)
{
    if (giver == NOTHING)
        empty_give(address);
    else if (giver == NOTHING_SHARED)
        empty_library.give(NULL, address);
    else if (giver == MALLOC)
        free((void *)(uintptr_t)address);
    else if (giver == LIBRARY)
        library.give(library.pool, address);
    else if (giver == POOL || !mt_pool_front_push_small(pool, address))
        mt_pool_free(pool, address);
}

/* Takes so many blocks and gives them back, the youngest first; n times. */
static inline void pairs(struct mt_pool *pool, enum giver giver, uint64_t bytes, int at_once, int n)
{
    uint64_t addresses[MOST_AT_ONCE];
    for (int round = 0; round < n; round++) {
        for (int i = 0; i < at_once; i++)
            take(pool, giver, bytes, &addresses[i]);
        for (int i = at_once - 1; i >= 0; i--)
            give(pool, giver, addresses[i]);
    }
}

/* Keeps the compiler from leaving an object out. */
static void keep(void *object)
{
    __asm__ volatile("" ::"r"(object) : "memory");
}

/* The time of a pair, the best of some rounds, each at another place of the stack: a processor that
 * compares the lower bits of addresses takes some stores for others, which is chance. */
static double pair_ns(struct mt_pool *pool, enum giver giver, uint64_t bytes, int at_once)
{
    double best = 1e18;
    int n = giver == MALLOC && bytes >= 65536 ? 2000 : 100000;
    for (int round = 0; round < 15; round++) {
        keep(__builtin_alloca(272));
        double start = now_ns();
        switch (giver) {
        case NOTHING:
            pairs(pool, NOTHING, bytes, at_once, n);
            break;
        case NOTHING_SHARED:
            pairs(pool, NOTHING_SHARED, bytes, at_once, n);
            break;
        case POOL:
            pairs(pool, POOL, bytes, at_once, n);
            break;
        case INLINE:
            pairs(pool, INLINE, bytes, at_once, n);
            break;
        case MALLOC:
            pairs(pool, MALLOC, bytes, at_once, n);
            break;
        case LIBRARY:
            pairs(pool, LIBRARY, bytes, at_once, n);
            break;
        }
        double spent = (now_ns() - start) / n / at_once;
        best = spent < best ? spent : best;
    }
    return best;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void bench_pairs(void)
{
    static const uint64_t sizes[] = {64, 4096, 65536, 2 << 20, 64 << 20};
    struct mt_pool *pool = make_pool(mt_pool_host_backend());
    double small = 0, small_shared = 0, any = 0, many = 0;
    printf("ns for taking a block and giving it back; two empty calls: %.1f, of a shared library "
           "%.1f\n",
           pair_ns(pool, NOTHING, 1, 1), pair_ns(pool, NOTHING_SHARED, 1, 1));
    printf("%-10s %9s %9s %9s %9s %9s %9s\n", "bytes", "linked", "shared", "inlined", "malloc",
           "shared, 8", "malloc, 8");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double linked = pair_ns(pool, POOL, sizes[i], 1);
        double shared = pair_ns(pool, LIBRARY, sizes[i], 1);
        double eight = pair_ns(pool, LIBRARY, sizes[i], MOST_AT_ONCE);
        small = sizes[i] <= 65536 ? larger(small, linked) : small;
        small_shared = sizes[i] <= 65536 ? larger(small_shared, shared) : small_shared;
        any = larger(any, larger(linked, shared));
        many = larger(many, eight);
        printf("%-10" PRIu64 " %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f\n", sizes[i], linked, shared,
               pair_ns(pool, INLINE, sizes[i], 1), pair_ns(pool, MALLOC, sizes[i], 1), eight,
               pair_ns(pool, MALLOC, sizes[i], MOST_AT_ONCE));
    }
    judge("a block up to 64 KiB", small, 3, "ns");
    judge("a block up to 64 KiB, by the shared library", small_shared, 3, "ns");
    judge("a block of any size", any, 15, "ns");
    judge("each of eight blocks of any size", many, 15, "ns");
    mt_pool_destroy(pool);
}

/* One thread takes blocks, another gives them back, each on a processor of its own: on the same one
 * they would hand over many at a time. Both are at work all the time, and wait for nothing but the
 * other's next step: a place is 0 where it is empty. */
struct ring {
    struct mt_pool *pool;
    enum giver giver;
    cpu_set_t processors;
    _Atomic uint64_t blocks[ON_WAY];
};

/* Keeps the calling thread on the n-th of the processors that it may use. */
static void stay_on(const cpu_set_t *processors, int n)
{
    cpu_set_t one;
    size_t at = 0;
    while (!CPU_ISSET(at, processors) || n-- > 0)
        at++;
    CPU_ZERO(&one);
    CPU_SET(at, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void *give_all(void *context)
{
    struct ring *ring = context;
    stay_on(&ring->processors, CPU_COUNT(&ring->processors) > 1);
    for (unsigned i = 0; i < PASSED; i++) {
        _Atomic uint64_t *place = &ring->blocks[i % ON_WAY];
        uint64_t block;
        while (!(block = atomic_load_explicit(place, memory_order_acquire)))
            sched_yield();
        give(ring->pool, ring->giver, block);
        atomic_store_explicit(place, 0, memory_order_release);
    }
    return NULL;
}

static void take_all(struct ring *ring, uint64_t bytes)
{
    for (unsigned i = 0; i < PASSED; i++) {
        _Atomic uint64_t *place = &ring->blocks[i % ON_WAY];
        uint64_t block;
        take(ring->pool, ring->giver, bytes, &block);
        while (atomic_load_explicit(place, memory_order_relaxed))
            sched_yield();
        atomic_store_explicit(place, block, memory_order_release);
    }
}

/* The time of a block, the best of some rounds, so that others have little part in it. */
static double cross_ns(struct mt_pool *pool, enum giver giver, uint64_t bytes)
{
    struct ring *ring = calloc(1, sizeof *ring);
    double best = 1e18;
    if (!ring)
        exit(2);
    ring->pool = pool;
    ring->giver = giver;
    sched_getaffinity(0, sizeof ring->processors, &ring->processors);
    stay_on(&ring->processors, 0);
    for (int round = 0; round < 30; round++) {
        pthread_t thread;
        double start = now_ns();
        if (pthread_create(&thread, NULL, give_all, ring) != 0)
            exit(2);
        take_all(ring, bytes);
        pthread_join(thread, NULL);
        double spent = (now_ns() - start) / PASSED;
        best = spent < best ? spent : best;
    }
    sched_setaffinity(0, sizeof ring->processors, &ring->processors);
    free(ring);
    return best;
}

static void bench_cross(void)
{
    static const uint64_t sizes[] = {64, 4096, 65536, 2 << 20};
    struct mt_pool *pool = make_pool(mt_pool_host_backend());
    printf("a number that goes from thread to thread: %.1f ns\n", cross_ns(pool, NOTHING, 1));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char what[64];
        snprintf(what, sizeof what, "%" PRIu64 " bytes taken here, given back there", sizes[i]);
        judge(what, cross_ns(pool, POOL, sizes[i]), 97, "ns");
        printf("%-52s %10.3g ns\n", "the same by malloc", cross_ns(pool, MALLOC, sizes[i]));
    }
    mt_pool_destroy(pool);
}

static void touch(uint64_t address, uint64_t bytes)
{
    volatile char *block = (volatile char *)(uintptr_t)address;
    for (uint64_t at = 0; at < bytes; at += 4096)
        block[at] = 1;
}

static void free_all(struct mt_pool *pool, const struct trace *trace, uint64_t *addresses)
{
    for (uint64_t id = 0; id < trace->n_ids; id++) {
        mt_pool_free(pool, addresses[id]);
        addresses[id] = 0;
    }
}

static void replay(struct mt_pool *pool, const struct trace *trace, uint64_t *addresses,
                   int is_touched)
{
    for (size_t i = 0; i < trace->n; i++) {
        const struct event *event = &trace->events[i];
        uint64_t *address = &addresses[event->id];
        if (event->is_free) {
            mt_pool_free(pool, *address);
            *address = 0;
        } else if (mt_pool_allocate(pool, event->bytes, 0, address) != MT_OK)
            exit(2);
        else if (is_touched)
            touch(*address, event->bytes);
    }
    free_all(pool, trace, addresses);
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double clock_alone(double *times, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        times[i] = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
    }
    qsort(times, n, sizeof *times, by_value);
    return times[n - 1 - n / 10000];
}

/* The middle of each request's times in all rounds, in which the machine's own disturbances have no
 * part: the slowest of them. Sorts the times of a request. */
static double slowest_middle(double *times, size_t n_requests, size_t n_rounds)
{
    double slowest = 0;
    for (size_t request = 0; request < n_requests; request++) {
        double *own = &times[request * n_rounds];
        qsort(own, n_rounds, sizeof *own, by_value);
        slowest = own[n_rounds / 2] > slowest ? own[n_rounds / 2] : slowest;
    }
    return slowest;
}

/* A request's time by the thread's clock, so that other programs have little part in it. */
static void bench_tail(struct mt_pool *pool, const struct trace *trace, uint64_t *addresses)
{
    size_t n_requests = 0;
    double *times = malloc(trace->n * ROUNDS * sizeof *times);
    if (!times)
        exit(2);
    for (size_t round = 0; round < ROUNDS; round++) {
        n_requests = 0;
        for (size_t i = 0; i < trace->n; i++) {
            const struct event *event = &trace->events[i];
            uint64_t *address = &addresses[event->id];
            if (event->is_free) {
                mt_pool_free(pool, *address);
                *address = 0;
                continue;
            }
            double start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
            mt_pool_allocate(pool, event->bytes, 0, address);
            times[n_requests++ * ROUNDS + round] = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
        }
        free_all(pool, trace, addresses);
    }
    size_t n = n_requests * ROUNDS;
    double slowest = slowest_middle(times, n_requests, ROUNDS);
    qsort(times, n, sizeof *times, by_value);
    printf("a request with the clock's own time: median %.0f ns, 99 %% %.0f, most %.0f\n",
           times[n / 2], times[n / 100 * 99], times[n - 1]);
    judge("99.99 % of requests where nothing grows", times[n - 1 - n / 10000] / 1e3, 20, "us");
    judge("the slowest request, each by the middle of 200", slowest / 1e3, 20, "us");
    printf("99.99 %% of readings of the clock alone: %.1f us\n", clock_alone(times, n) / 1e3);
    free(times);
}

static void bench_replay(const struct trace *trace)
{
    struct mt_pool *pool = make_pool(mt_pool_host_backend());
    uint64_t *addresses = calloc(trace->n_ids, sizeof *addresses);
    struct mt_pool_stats stats;
    double best = 1e18;
    if (!addresses)
        exit(2);
    replay(pool, trace, addresses, 1); /* pages come */
    for (int round = 0; round < 3; round++) {
        double start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        replay(pool, trace, addresses, 1);
        double spent = (clock_ns(CLOCK_THREAD_CPUTIME_ID) - start) / (double)trace->n;
        best = spent < best ? spent : best;
    }
    mt_pool_stats_read(pool, &stats);
    judge("a real inference, each page touched, a call", best / 1e3, 44, "us");
    judge("what it holds by what lives, at most",
          (double)stats.peak_reserved_bytes / (double)trace->peak_bytes, 1.03, "");
    bench_tail(pool, trace, addresses);
    mt_pool_destroy(pool);
    free(addresses);
}

static uint64_t n_driver_calls;
static const struct mt_pool_backend *simulated;

static int counted_create(void *context, uint64_t *page)
{
    n_driver_calls++;
    return simulated->create(context, page);
}

static int counted_attach(void *context, uint64_t address, uint64_t page)
{
    n_driver_calls++;
    return simulated->attach(context, address, page);
}

static int counted_detach(void *context, uint64_t address, uint64_t page)
{
    n_driver_calls++;
    return simulated->detach(context, address, page);
}

/* Pages that are made, attached or detached, once the first rounds have brought what is needed. */
static void bench_driver_calls(const struct trace *trace)
{
    struct mt_pool_simulated *device;
    uint64_t *addresses = calloc(trace->n_ids, sizeof *addresses);
    if (!addresses ||
        mt_pool_simulated_create((uint64_t)64 << 30, (uint64_t)2 << 20, &device, NULL) != MT_OK)
        exit(2);
    simulated = mt_pool_simulated_backend(device);
    struct mt_pool_backend counted = *simulated;
    counted.create = counted_create;
    counted.attach = counted_attach;
    counted.detach = counted_detach;
    struct mt_pool *pool = make_pool(&counted);
    replay(pool, trace, addresses, 0);
    printf("calls of the driver in the first round: %" PRIu64 "\n", n_driver_calls);
    for (int round = 0; round < 3; round++)
        replay(pool, trace, addresses, 0);
    uint64_t first = n_driver_calls;
    for (int round = 0; round < 10; round++)
        replay(pool, trace, addresses, 0);
    judge("calls of the driver in rounds 5 to 14", (double)(n_driver_calls - first), 0, "");
    mt_pool_destroy(pool);
    mt_pool_simulated_destroy(device);
    free(addresses);
}

static void *take_and_give(void *context)
{
    struct mt_pool *pool = context;
    uint64_t random = (uint64_t)(uintptr_t)&random, held[64] = {0};
    for (int i = 0; i < 200000; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint64_t *slot = &held[random >> 58];
        mt_pool_free(pool, *slot);
        if (mt_pool_allocate(pool, (random >> 20) % 100000 + 1, 0, slot) != MT_OK)
            exit(2);
        *(uint64_t *)(uintptr_t)*slot = *slot;
    }
    for (int i = 0; i < 64; i++) {
        if (held[i] && *(uint64_t *)(uintptr_t)held[i] != held[i])
            exit(3);
        mt_pool_free(pool, held[i]);
    }
    return NULL;
}

static void bench_threads(void)
{
    struct mt_pool *pool = make_pool(mt_pool_host_backend());
    struct mt_pool_stats stats;
    pthread_t threads[THREADS];
    double start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, take_and_give, pool) != 0)
            exit(2);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    double spent = (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / THREADS / 200000;
    mt_pool_stats_read(pool, &stats);
    printf("eight threads, sizes to 100,000 at random: %.0f ns of the processor for each pair\n",
           spent);
    judge("bytes that they lost", (double)(stats.live_bytes + stats.front_bytes), 0, "");
    judge("blocks that they lost", (double)(stats.n_allocations - stats.n_frees), 0, "");
    mt_pool_destroy(pool);
}

int main(int argc, char **argv)
{
    struct trace trace = {0};
    if (argc != 2 || trace_read(argv[1], 1, &trace) != 0)
        return 2;
    open_libraries();
    bench_pairs();
    bench_cross();
    bench_threads();
    bench_driver_calls(&trace);
    bench_replay(&trace);
    free(trace.events);
    return 0;
}
