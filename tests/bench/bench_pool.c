/* SPDX-License-Identifier: MIT */
/* What a pool's calls cost beside malloc()'s, and what it holds beside what lives when it replays
 * the requests of real programs: bench_pool [TRACE…]. A trace is a CSV: a,ID,BYTES or f,ID,BYTES;
 * or id,lower,upper,size. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <memtally/pool.h>

#define PAGE ((uint64_t)2 << 20)

struct event {
    uint64_t time; /* of an interval trace */
    uint64_t id, bytes;
    int is_free;
};

struct trace {
    struct event *events;
    size_t n, room;
    uint64_t n_ids, peak_bytes;
};

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void add(struct trace *trace, struct event event)
{
    if (trace->n == trace->room) {
        trace->room = trace->room * 2 + 1024;
        trace->events = realloc(trace->events, trace->room * sizeof *trace->events);
        if (!trace->events)
            exit(2);
    }
    trace->events[trace->n++] = event;
    if (event.id >= trace->n_ids)
        trace->n_ids = event.id + 1;
}

/* What ends goes before what begins at the same time. */
static int by_time(const void *left, const void *right)
{
    const struct event *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->is_free != b->is_free)
        return b->is_free - a->is_free;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int read_trace(const char *path, struct trace *trace)
{
    char line[256];
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    int intervals = 0;
    while (fgets(line, sizeof line, file)) {
        uint64_t a, b, c, d;
        char op;
        if (strncmp(line, "id,", 3) == 0)
            intervals = 1;
        else if (intervals && sscanf(line, "%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64, &a, &b,
                                     &c, &d) == 4) {
            add(trace, (struct event){b, a, d, 0});
            add(trace, (struct event){c, a, d, 1});
        } else if (sscanf(line, "%c,%" SCNu64 ",%" SCNu64, &op, &a, &b) == 3 &&
                   (op == 'a' || op == 'f'))
            add(trace, (struct event){0, a, b, op == 'f'});
    }
    fclose(file);
    if (intervals)
        qsort(trace->events, trace->n, sizeof *trace->events, by_time);
    return 0;
}

/* What a block takes in a program without any pool: its own bytes. */
static void find_peak(struct trace *trace, uint64_t times)
{
    uint64_t live = 0;
    for (size_t i = 0; i < trace->n; i++) {
        struct event *event = &trace->events[i];
        event->bytes *= times;
        live = event->is_free ? live - event->bytes : live + event->bytes;
        if (live > trace->peak_bytes)
            trace->peak_bytes = live;
    }
}

static void replay(const char *name, const struct trace *trace, double soft_ratio)
{
    struct mt_pool_simulated *device;
    struct mt_pool *pool;
    struct mt_pool_options options = {.soft_bytes =
                                          (uint64_t)((double)trace->peak_bytes * soft_ratio),
                                      .address_bytes = (uint64_t)1 << 43};
    uint64_t *addresses = calloc(trace->n_ids, sizeof *addresses);
    if (!addresses || mt_pool_simulated_create((uint64_t)1 << 40, PAGE, &device, NULL) != MT_OK ||
        mt_pool_create(mt_pool_simulated_backend(device), &options, &pool, NULL) != MT_OK)
        exit(2);
    uint64_t n_failed = 0;
    double start = now_ns();
    for (size_t i = 0; i < trace->n; i++) {
        const struct event *event = &trace->events[i];
        uint64_t *address = &addresses[event->id];
        if (event->is_free) {
            mt_pool_free(pool, *address);
            *address = 0;
        } else
            n_failed += mt_pool_allocate(pool, event->bytes, 0, address) != MT_OK;
    }
    double spent = (now_ns() - start) / (double)trace->n;
    struct mt_pool_stats stats;
    mt_pool_stats_read(pool, &stats);
    printf("%-32s %9zu %10.1f %7.3f %9" PRIu64 " %9" PRIu64 " %6.1f %3" PRIu64 " %7.4f", name,
           trace->n, (double)trace->peak_bytes / 1048576,
           (double)stats.peak_reserved_bytes / (double)trace->peak_bytes, stats.n_growths,
           stats.n_pages_moved, spent, n_failed,
           (double)stats.n_hits / (double)(stats.n_hits + stats.n_misses));
    mt_pool_destroy(pool);
    if (mt_pool_simulated_destroy(device) != 0)
        printf("%s: the device's rules were broken\n", name);
    free(addresses);
}

/* The same requests under the policy `rounding`: what of them it has kept, and what it holds. */
static void replay_rounding(const struct trace *trace)
{
    struct mt_pool_simulated *device;
    struct mt_pool *pool;
    struct mt_pool_rounding *rounding;
    struct mt_pool_options options = {.address_bytes = (uint64_t)1 << 43, .no_front = 1};
    uint64_t *addresses = calloc(trace->n_ids, sizeof *addresses);
    if (!addresses || mt_pool_simulated_create((uint64_t)1 << 44, PAGE, &device, NULL) != MT_OK ||
        mt_pool_create(mt_pool_simulated_backend(device), &options, &pool, NULL) != MT_OK ||
        mt_pool_rounding_create(pool, &rounding) != MT_OK)
        exit(2);
    uint64_t n_failed = 0, n_hits, n_misses;
    for (size_t i = 0; i < trace->n; i++) {
        const struct event *event = &trace->events[i];
        uint64_t *address = &addresses[event->id];
        if (event->is_free) {
            mt_pool_rounding_free(rounding, *address);
            *address = 0;
        } else
            n_failed += mt_pool_rounding_allocate(rounding, event->bytes, 0, address) != MT_OK;
    }
    struct mt_pool_stats stats;
    mt_pool_stats_read(pool, &stats);
    mt_pool_rounding_count(rounding, &n_hits, &n_misses);
    printf(" %7.4f %7.3f%s\n", (double)n_hits / (double)(n_hits + n_misses),
           (double)stats.peak_reserved_bytes / (double)trace->peak_bytes,
           n_failed ? " (requests failed)" : "");
    mt_pool_rounding_destroy(rounding);
    mt_pool_destroy(pool);
    mt_pool_simulated_destroy(device);
    free(addresses);
}

#define MOST_AT_ONCE 8

enum giver { NOTHING, POOL, MALLOC };

/* Two calls that do nothing: no allocator in a library of its own costs less. */
static __attribute__((noinline)) void empty_take(uint64_t bytes, uint64_t *address)
{
    *address = bytes;
    __asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void empty_give(uint64_t address)
{
    __asm__ volatile("" ::"r"(address) : "memory");
}

/* Takes so many blocks and gives them back, the youngest first. */
static void pairs(struct mt_pool *pool, enum giver giver, uint64_t bytes, int at_once)
{
    uint64_t addresses[MOST_AT_ONCE];
    for (int i = 0; i < at_once; i++)
        if (giver == POOL)
            mt_pool_allocate(pool, bytes, 0, &addresses[i]);
        else if (giver == MALLOC)
            addresses[i] = (uint64_t)(uintptr_t)malloc((size_t)bytes);
        else
            empty_take(bytes, &addresses[i]);
    for (int i = at_once - 1; i >= 0; i--)
        if (giver == POOL)
            mt_pool_free(pool, addresses[i]);
        else if (giver == MALLOC)
            free((void *)(uintptr_t)addresses[i]);
        else
            empty_give(addresses[i]);
}

/* Of a pair, the best of some rounds. */
static double pair_ns(struct mt_pool *pool, enum giver giver, uint64_t bytes, int at_once)
{
    double best = 1e18;
    int n = giver == MALLOC && bytes >= 65536 ? 2000 : 200000;
    for (int round = 0; round < 15; round++) {
        double start = now_ns();
        for (int i = 0; i < n; i++)
            pairs(pool, giver, bytes, at_once);
        double spent = (now_ns() - start) / n / at_once;
        best = spent < best ? spent : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    struct mt_pool *pool;
    if (mt_pool_create(mt_pool_host_backend(), NULL, &pool, NULL) != MT_OK)
        return 2;
    printf("ns for taking a block and giving it back; two empty calls: %.1f\n",
           pair_ns(pool, NOTHING, 1, 1));
    printf("%-10s %9s %9s %9s %9s\n", "bytes", "pool", "malloc", "pool, 8", "malloc, 8");
    static const uint64_t sizes[] = {64, 4096, 65536, 2 << 20, 64 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        printf("%-10" PRIu64 " %9.1f %9.1f %9.1f %9.1f\n", sizes[i],
               pair_ns(pool, POOL, sizes[i], 1), pair_ns(pool, MALLOC, sizes[i], 1),
               pair_ns(pool, POOL, sizes[i], MOST_AT_ONCE),
               pair_ns(pool, MALLOC, sizes[i], MOST_AT_ONCE));
    mt_pool_destroy(pool);
    if (argc > 1)
        printf("%-32s %9s %10s %7s %9s %9s %6s %3s %7s %15s\n", "trace", "requests", "live MiB",
               "held", "growths", "moved", "ns", "not", "hits", "rounding: hits, held");
    for (int i = 1; i < argc; i++) {
        struct trace trace = {0};
        if (read_trace(argv[i], &trace) != 0)
            return 2;
        const char *name = strrchr(argv[i], '/') ? strrchr(argv[i], '/') + 1 : argv[i];
        /* The instances of minimalloc are of 1 MiB: as if of 1 GiB. */
        find_peak(&trace, strstr(argv[i], "minimalloc") ? 1024 : 1);
        replay(name, &trace, 1.05);
        replay_rounding(&trace);
        free(trace.events);
    }
    return 0;
}
