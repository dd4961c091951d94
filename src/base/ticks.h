/* SPDX-License-Identifier: MIT */
/* The cheapest clock that orders events across threads. Preload-safe: inline, no state. */
#ifndef MT_BASE_TICKS_H
#define MT_BASE_TICKS_H

#include <stdint.h>
#include <time.h>

static inline uint64_t mt_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Processor time of the calling thread. */
static inline uint64_t mt_thread_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The processor's own counter, or 0 where there is none. */
static inline uint64_t mt_counter(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc(); /* Intel's headers would cost each file 0.2 s. */
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return 0;
#endif
}

/* The counter where `use_counter` says that it runs at one rate on all processors, else
 * nanoseconds of CLOCK_MONOTONIC. */
static inline uint64_t mt_ticks(int use_counter)
{
    return use_counter ? mt_counter() : mt_monotonic_ns();
}

/* Both clocks at nearly one moment. A thread may lose its processor between two readings, so the
 * quickest of a few tries counts. */
static inline void mt_clock_pair(int use_counter, uint64_t *ticks, uint64_t *monotonic_ns)
{
    uint64_t least = UINT64_MAX;
    *ticks = *monotonic_ns = 0;
    for (int i = 0; i < 4; i++) {
        uint64_t before = mt_ticks(use_counter);
        uint64_t ns = mt_monotonic_ns();
        uint64_t took = mt_ticks(use_counter) - before;
        if (took >= least)
            continue;
        least = took;
        *ticks = before + took / 2;
        *monotonic_ns = ns;
    }
}

#endif
