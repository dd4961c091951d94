/* SPDX-License-Identifier: MIT */
/* Taking linear memory of a pretended device, and saying what it is for. */
#ifndef MT_CUDA_DRIVER_LINEAR_H
#define MT_CUDA_DRIVER_LINEAR_H

#include <stdint.h>

#include <memtally/category.h>

#include "pretend/cuda/abi/driver_base.h"

/* Takes memory of a device as cuMemAlloc does. Lock not held. */
CUresult pretend_memory_take(CUdevice device, uint64_t bytes, enum mt_category category,
                             const char *name, CUdeviceptr *pointer);

/* The same, lock held. */
CUresult pretend_linear_take(int device, uint64_t bytes, enum mt_category category,
                             const char *name, CUdeviceptr *pointer);

/* The same of less than PRETEND_SMALL_BELOW, in a slab (slabs.c). */
CUresult pretend_slab_take(int device, uint64_t bytes, enum mt_category category, const char *name,
                           CUdeviceptr *pointer);

/* Tells the account what was refused, also where no addresses are left. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult pretend_refuse_addresses(int device, enum mt_category category, uint64_t asked,
                                  const char *name);

#endif
