/* SPDX-License-Identifier: MIT */
/* A kernel that keeps one process's resident size and mark in numbers, and refuses what it is told
 * to. Its clock moves only by what the test says: each reading or writing of a file takes
 * FILE_NS. The thread and the waiting are real. */
#ifndef MT_TESTS_FAKE_KERNEL_H
#define MT_TESTS_FAKE_KERNEL_H

#include <pthread.h>
#include <stdint.h>

#include "measure/os.h"
#include "measure/registry.h"

#define FILE_NS    7000u
#define PAGE_BYTES 4096u

struct fake_kernel {
    struct mt_measure_os os;
    struct mt_measure_registry registry;
    pthread_mutex_t lock; /* of all below */
    uint64_t clock_ns;
    uint64_t resident_bytes;
    uint64_t mark_bytes;
    unsigned n_looks;  /* readings of statm */
    unsigned n_resets; /* writes to clear_refs */
    int status_errno;
    int statm_errno;
    int clear_refs_errno;
    int thread_errno;
    int hides_mark;
};

void fake_kernel_init(struct fake_kernel *kernel);

/* The process takes or gives back so many bytes; time passes. */
void fake_take(struct fake_kernel *kernel, uint64_t bytes);
void fake_give(struct fake_kernel *kernel, uint64_t bytes);
void fake_pass(struct fake_kernel *kernel, uint64_t ns);

/* Returns when statm has been read twice more, so that what stands now has been seen. */
void fake_await_look(struct fake_kernel *kernel);

#endif
