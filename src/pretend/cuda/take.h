/* SPDX-License-Identifier: MIT */
/* Memory that look-alikes take of the pretended driver, and what memory is for. Any thread. */
#ifndef MT_CUDA_TAKE_H
#define MT_CUDA_TAKE_H

#include <stdint.h>

#include <memtally/category.h>

#include "pretend/cuda/abi/driver_base.h"

/* What the memory at `pointer` is for, if a library knows: a workspace that the program gave to
 * cuBLAS. `bytes` may be a part of an allocation. */
void pretend_cuda_usage(CUdeviceptr pointer, uint64_t bytes, enum mt_category category,
                        const char *name);

/* Memory that a library takes for itself on a device, as a program sees it (after
 * CUDA_VISIBLE_DEVICES): the workspace of a handle, the buffers of a communicator. Errors:
 * CUDA_ERROR_OUT_OF_MEMORY. pretend_cuda_give() gives it back. */
CUresult pretend_cuda_take(CUdevice device, uint64_t bytes, enum mt_category category,
                           const char *name, CUdeviceptr *pointer);
void pretend_cuda_give(CUdeviceptr pointer);

/* What the next cuMemAlloc() of this thread is for; MT_CATEGORY_NONE: not said. `name` is kept. */
void pretend_cuda_expect(enum mt_category category, const char *name);

#endif
