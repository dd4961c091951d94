/* SPDX-License-Identifier: MIT */
/* What allocation calls cost: nanoseconds for a block that is made, touched and given back, by
 * size. Run with and without an object preloaded. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SMALL_BYTES 100
#define LARGE_BYTES ((size_t)2 << 20)
#define SMALL_CALLS 2000000
#define LARGE_CALLS 6000 /* so few that a rehearsal notes every one */
#define HELD        256

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* A few hundred blocks are held at a time, so that the heap is not always the same block. */
static double small_ns(void)
{
    char *held[HELD] = {0};
    double start = now_ns();
    for (size_t i = 0; i < SMALL_CALLS; i++) {
        free(held[i % HELD]);
        held[i % HELD] = malloc(SMALL_BYTES);
        if (held[i % HELD])
            *(volatile char *)held[i % HELD] = 1;
    }
    double spent = now_ns() - start;
    for (size_t i = 0; i < HELD; i++)
        free(held[i]);
    return spent / SMALL_CALLS;
}

static double large_ns(void)
{
    double start = now_ns();
    for (size_t i = 0; i < LARGE_CALLS; i++) {
        char *block = malloc(LARGE_BYTES);
        if (block)
            *(volatile char *)block = 1;
        free(block);
    }
    return (now_ns() - start) / LARGE_CALLS;
}

/* Freeing small blocks while large ones live is what a running server does. */
static double small_beside_large_ns(void)
{
    char *large = malloc(LARGE_BYTES);
    double spent = small_ns();
    if (large)
        *(volatile char *)large = 1;
    free(large);
    return spent;
}

int main(void)
{
    double small = small_ns();
    double beside = small_beside_large_ns();
    printf("%.2f %.2f %.2f\n", small, beside, large_ns());
    return 0;
}
