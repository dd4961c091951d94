/* SPDX-License-Identifier: MIT */
/* The process that bench_attach looks at: it holds memory and works without end, or waits. */
#ifndef TESTS_BENCH_ATTACHED_CHILD_H
#define TESTS_BENCH_ATTACHED_CHILD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STALLS_MAX 4096

enum child_pages { CHILD_SMALL, CHILD_HUGE, CHILD_ZEROS };

/* What it does in steps of some 10 to 50 us; CHILD_STALLS maps in a thread and notes its stalls. */
enum child_work {
    CHILD_STALLS,
    CHILD_COMPUTES, /* in what the processor's own caches hold */
    CHILD_READS,    /* all over the memory that it holds */
    CHILD_FAULTS,   /* gives 64 pages back and touches them again */
    CHILD_MAPS,     /* maps and unmaps 64 KiB */
    CHILD_WORKS
};

/* A mapping and its removal that took more than a millisecond. */
struct child_stall {
    uint64_t begin_ns, end_ns; /* of CLOCK_MONOTONIC */
    uint64_t delayed_ns;       /* the thread could have run and had no processor */
    int asleep;                /* it gave its processor up itself, as for a lock */
};

/* Shared by the child and its parent. */
struct child_shared {
    _Atomic int ready;
    _Atomic int notes;      /* the child is to note its stalls */
    _Atomic int has_delays; /* the kernel tells them */
    _Atomic uint64_t steps;
    _Atomic uint64_t n_mapped;
    _Atomic unsigned n_stalls; /* those beyond STALLS_MAX are not noted */
    struct child_stall stalls[STALLS_MAX];
};

extern struct child_shared *child_shared;

/* Makes what is shared; 0 where that is not to be had. */
int child_prepare(void);

/* Starts a child that holds `bytes`, and waits until it does. With `has_fork` the child has one of
 * its own that shares all of it. */
pid_t child_start(size_t bytes, enum child_pages pages, enum child_work work, int has_fork);

void child_end(pid_t child);

#endif
