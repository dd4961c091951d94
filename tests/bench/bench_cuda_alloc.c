/* SPDX-License-Identifier: MIT */
/* What a pair of cuMemAlloc and cuMemFree costs in a rehearsal, with the account's events and
 * without: of sizes that share a page, of a page and of many pages, among others that are there.
 * Beside it, malloc and free of as much, and the account's counter alone. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "pretend/cuda/driver/memory/memory.h"
#include "rehearse/account_write.h"
#include "rehearse/rehearsal.h"

#define PAIRS 20000

CUresult cuInit(unsigned flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) __attribute__((weak));
CUresult cuCtxSetCurrent(CUcontext context) __attribute__((weak));
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr pointer);

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* What is timed. */

static void device_pair(size_t bytes)
{
    CUdeviceptr pointer;
    if (cuMemAlloc_v2(&pointer, bytes) != CUDA_SUCCESS)
        exit(1);
    cuMemFree_v2(pointer);
}

static void counter_pair(size_t bytes)
{
    uint64_t free_bytes;
    if (!pretend_take(0, bytes, &free_bytes))
        exit(1);
    pretend_give_back(0, bytes);
}

static void malloc_pair(size_t bytes)
{
    char *volatile memory = malloc(bytes);
    free(memory);
}

/* The least of some tries, in ns for a pair. */
static double time_pairs(void (*pair)(size_t), size_t bytes)
{
    double least = 1e18;
    for (int t = 0; t < 5; t++) {
        double begun = now_ns();
        for (int i = 0; i < PAIRS; i++)
            pair(bytes);
        double took = (now_ns() - begun) / PAIRS;
        least = took < least ? took : least;
    }
    return least;
}

static void print_pairs(struct mt_account *account, size_t bytes)
{
    double told = time_pairs(device_pair, bytes);
    account->n_events = MT_ACCOUNT_EVENTS_MAX; /* no event is written any more */
    double untold = time_pairs(device_pair, bytes);
    double counter = time_pairs(counter_pair, bytes);
    double plain = time_pairs(malloc_pair, bytes);
    account->n_events = 0;
    printf(
        "cuda alloc+free of %zu bytes: %.0f ns told, %.0f ns without events; %.1f times malloc's "
        "%.0f ns, %.1f times the bare counter's %.0f ns\n",
        bytes, told, untold, told / plain, plain, told / counter, counter);
}

int main(void)
{
    static const size_t sizes[] = {512, 100000, (size_t)2 << 20, (size_t)20 << 20,
                                   (size_t)20 << 30};
    struct mt_rehearsal_device device = {.bytes = UINT64_C(80) << 30};
    struct mt_rehearsal_options options = {.devices = &device, .n_devices = 1};
    struct mt_account *account;
    CUcontext context;
    CUdeviceptr pointer;
    char path[] = "/tmp/memtally-bench-XXXXXX";
    close(mkstemp(path));
    unlink(path);
    if (mt_account_create(&options, path, &account, NULL) < 0)
        return 1;
    account->cuda.driver_version = 13000;
    setenv(MT_ACCOUNT_VARIABLE, path, 1);
    if (cuInit(0) != CUDA_SUCCESS)
        return 1;
    if (cuDevicePrimaryCtxRetain && (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
                                     cuCtxSetCurrent(context) != CUDA_SUCCESS))
        return 1;
    for (int i = 0; i < 10000; i++)
        cuMemAlloc_v2(&pointer, i % 2 ? 5000 : (size_t)3 << 20);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        print_pairs(account, sizes[i]);
    unlink(path);
    return 0;
}
