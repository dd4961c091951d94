/* SPDX-License-Identifier: MIT */
/* A CUDA device as a backend: what virtual memory and memory in segments have in common. */
#ifndef MT_POOL_CUDA_H
#define MT_POOL_CUDA_H

#include "pool/driver.h"

#define MT_CUDA_PAGE_BYTES ((uint64_t)2 << 20)

struct mt_pool_cuda {
    struct mt_cuda_driver driver;
    struct mt_pool_backend backend;
    struct mt_cuda_property property;
    void *primary;               /* the device's context */
    void *own_pool, *own_stream; /* of the driver, where memory comes from a pool of its own */
    int device;
    uint64_t total_bytes;
};

/* A device by its number, with its context and a backend of events and copies alone. Owned. Errors
 * as of mt_pool_cuda_create(). */
int mt_cuda_device_make(const struct mt_cuda_driver *driver, int device, uint64_t page_bytes,
                        struct mt_pool_cuda **cuda, struct mt_error *error);

/* Begins calls of the driver with the device's context current: what a caller captures on its own
 * streams goes on. Returns what mt_cuda_leave() is handed; *code tells whether it worked. */
int mt_cuda_enter(const struct mt_pool_cuda *cuda, int *code);
void mt_cuda_leave(const struct mt_pool_cuda *cuda, int mode, int code);

int mt_cuda_code_of(int result);

/* Ends the driver's pool that memory comes from, where there is one. */
void mt_cuda_ordered_finish(struct mt_pool_cuda *cuda);

#endif
