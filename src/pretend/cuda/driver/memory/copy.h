/* SPDX-License-Identifier: MIT */
/* Copies and sets of bytes, for all calls that do them. The lock is not held. */
#ifndef MT_CUDA_DRIVER_COPY_H
#define MT_CUDA_DRIVER_COPY_H

#include "memory.h"

/* Copies as far as a rehearsal does: small copies, and those between host memory. Both ends are
 * checked whatever their size. */
CUresult pretend_copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes);
/* Sets `n` elements of `element_bytes` (1, 2 or 4) to `value`. */
CUresult pretend_set(CUdeviceptr to, uint32_t value, uint64_t element_bytes, uint64_t n);

#endif
