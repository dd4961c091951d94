/* SPDX-License-Identifier: MIT */
/* What the child does with blocks of many sizes; it counts them itself. */
#include <memtally/scope.h>

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recorder/child.h"

#define SLOTS 512

struct count {
    unsigned long allocs;
    unsigned long alloc_bytes;
    unsigned long frees;
    unsigned long free_bytes;
};

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void drop(void **slot, struct count *count)
{
    if (!*slot)
        return;
    count->frees++;
    count->free_bytes += malloc_usable_size(*slot);
    free(*slot);
    *slot = NULL;
}

/* small N LIMIT: N allocations of up to LIMIT bytes, most of them freed again. */
static int small(int argc, char **argv)
{
    static void *slots[SLOTS];
    uint64_t random = 88172645463325252u;
    struct count count = {0};
    long n = number(argc, argv, 1, 1000);
    uint64_t limit = (uint64_t)number(argc, argv, 2, 60000);
    for (long i = 0; i < n; i++) {
        void **slot = &slots[next(&random) % SLOTS];
        drop(slot, &count);
        *slot = keep(malloc(next(&random) % limit));
        MUST(*slot != NULL);
        count.allocs++;
        count.alloc_bytes += malloc_usable_size(*slot);
    }
    say("allocs=%lu alloc_bytes=%lu frees=%lu free_bytes=%lu\n", count.allocs, count.alloc_bytes,
        count.frees, count.free_bytes);
    return 0;
}

/* large: blocks on both sides of the size from which they are events. */
static int large(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    mt_mark("large");
    char *below = keep(malloc(65520)); /* usable: 65528 or so */
    char *above = keep(malloc(65536));
    char *big = keep(malloc(3000000));
    free(below);
    free(big);
    mt_mark("end");
    MUST(malloc_usable_size(above) >= 65536);
    say("ALLOC %lx 10000\nALLOC %lx %x\nFREE %lx\n", (unsigned long)(uintptr_t)above,
        (unsigned long)(uintptr_t)big, 3000000u, (unsigned long)(uintptr_t)big);
    return 0;
}

void early_is_linked(void);

/* nothing: what is recorded is of the loader and of library constructors. */
static int nothing(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    early_is_linked();
    return 0;
}

const struct command heap_commands[] = {
    {"small", small}, {"large", large}, {"nothing", nothing}, {NULL, NULL}};
