/* SPDX-License-Identifier: MIT */
/* What a pool holds at most beside what lives at most, for the requests of many programs, and
 * beside models of other allocators: bench_pool_traces TRACE… */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error.h>
#include <memtally/pool.h>

#include "pool_trace.h"

#define PAGE       ((uint64_t)2 << 20)
#define SOFT_RATIO 1.05
#define COLUMNS    (ALLOCATORS + 2)
#define GATE_MEAN  1.03
#define GATE_WORST 1.07

enum { POOL = ALLOCATORS, ROUNDING };

static const char *const names[COLUMNS] = {"PyTorch", "expandable", "CuPy",
                                           "RMM",     "pool",       "rounding"};

struct sums {
    double log, worst;
};

static void *must(void *pointer)
{
    if (!pointer)
        exit(2);
    return pointer;
}

static struct mt_pool *make_pool(struct mt_pool_simulated **device, uint64_t soft_bytes)
{
    struct mt_pool *pool;
    struct mt_pool_options options = {.soft_bytes = soft_bytes, .address_bytes = (uint64_t)1 << 43};
    if (mt_pool_simulated_create((uint64_t)1 << 41, PAGE, device, NULL) != MT_OK ||
        mt_pool_create(mt_pool_simulated_backend(*device), &options, &pool, NULL) != MT_OK)
        exit(2);
    return pool;
}

static void finish(struct mt_pool *pool, struct mt_pool_simulated *device)
{
    mt_pool_destroy(pool);
    if (mt_pool_simulated_destroy(device) != 0)
        printf("the device's rules were broken\n");
}

/* The pool with a soft limit of 5 % above the peak. */
static uint64_t replay_pool(const struct trace *trace, struct mt_pool_stats *stats)
{
    struct mt_pool_simulated *device;
    struct mt_pool *pool = make_pool(&device, (uint64_t)((double)trace->peak_bytes * SOFT_RATIO));
    uint64_t *addresses = must(calloc(trace->n_ids, sizeof *addresses));
    for (size_t i = 0; i < trace->n; i++) {
        const struct event *event = &trace->events[i];
        if (event->is_free)
            mt_pool_free(pool, addresses[event->id]);
        else if (mt_pool_allocate(pool, event->bytes, 0, &addresses[event->id]) != MT_OK)
            exit(2);
    }
    mt_pool_stats_read(pool, stats);
    finish(pool, device);
    free(addresses);
    return stats->peak_reserved_bytes;
}

static uint64_t replay_rounding(const struct trace *trace, double *hits)
{
    struct mt_pool_simulated *device;
    struct mt_pool *pool = make_pool(&device, 0);
    struct mt_pool_rounding *rounding;
    struct mt_pool_stats stats;
    uint64_t n_hits, n_misses;
    uint64_t *addresses = must(calloc(trace->n_ids, sizeof *addresses));
    if (mt_pool_rounding_create(pool, &rounding) != MT_OK)
        exit(2);
    for (size_t i = 0; i < trace->n; i++) {
        const struct event *event = &trace->events[i];
        if (event->is_free)
            mt_pool_rounding_free(rounding, addresses[event->id]);
        else if (mt_pool_rounding_allocate(rounding, event->bytes, 0, &addresses[event->id]) !=
                 MT_OK)
            exit(2);
    }
    mt_pool_stats_read(pool, &stats);
    mt_pool_rounding_count(rounding, &n_hits, &n_misses);
    *hits = (double)n_hits / (double)(n_hits + n_misses);
    mt_pool_rounding_destroy(rounding);
    finish(pool, device);
    free(addresses);
    return stats.peak_reserved_bytes;
}

static void row(const char *name, const struct trace *trace, struct sums *sums)
{
    struct mt_pool_stats stats;
    double hits, ratio[COLUMNS];
    for (int i = 0; i < ALLOCATORS; i++)
        ratio[i] = (double)allocator_peak((enum allocator)i, trace);
    ratio[POOL] = (double)replay_pool(trace, &stats);
    ratio[ROUNDING] = (double)replay_rounding(trace, &hits);
    printf("%-28s %10.1f", name, (double)trace->peak_bytes / 1048576);
    for (int i = 0; i < COLUMNS; i++) {
        ratio[i] /= (double)trace->peak_bytes;
        sums[i].log += log(ratio[i]);
        if (ratio[i] > sums[i].worst)
            sums[i].worst = ratio[i];
        printf(" %10.3f", ratio[i]);
    }
    printf(" %8" PRIu64 " %6.1f%% %6.1f%%\n", stats.n_pages_moved,
           100.0 * (double)stats.n_hits / (double)stats.n_allocations, 100.0 * hits);
}

int main(int argc, char **argv)
{
    struct sums sums[COLUMNS] = {{0, 0}};
    printf("%-28s %10s", "held by live, at most", "live MiB");
    for (int i = 0; i < COLUMNS; i++)
        printf(" %10s", names[i]);
    printf(" %8s %7s %7s\n", "moved", "hits", "rounds");
    for (int i = 1; i < argc; i++) {
        struct trace trace = {0};
        const char *name = strrchr(argv[i], '/') ? strrchr(argv[i], '/') + 1 : argv[i];
        /* The instances of minimalloc are of 1 MiB: as if of 1 GiB. */
        if (trace_read(argv[i], strstr(name, "minimalloc") ? 1024 : 1, &trace) != 0)
            return 2;
        row(name, &trace, sums);
        fflush(stdout);
        free(trace.events);
    }
    if (argc < 2)
        return 2;
    printf("%-28s %10d", "geometric mean of", argc - 1);
    for (int i = 0; i < COLUMNS; i++)
        printf(" %10.3f", exp(sums[i].log / (argc - 1)));
    printf("\n%-28s %10s", "worst", "");
    for (int i = 0; i < COLUMNS; i++)
        printf(" %10.3f", sums[i].worst);
    double mean = exp(sums[POOL].log / (argc - 1));
    printf("\ngates of the pool: mean %.4f, at most %.2f: %s; worst %.4f, at most %.2f: %s\n", mean,
           GATE_MEAN, mean <= GATE_MEAN ? "met" : "missed", sums[POOL].worst, GATE_WORST,
           sums[POOL].worst <= GATE_WORST ? "met" : "missed");
    return 0;
}
