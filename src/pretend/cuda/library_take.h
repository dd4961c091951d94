/* SPDX-License-Identifier: MIT */
/* Memory that a library takes for itself, as the true ones do: by the driver's public functions, so
 * that who stands before these sees that the library called. */
#ifndef MT_CUDA_LIBRARY_TAKE_H
#define MT_CUDA_LIBRARY_TAKE_H

#include <stddef.h>

#include "pretend/cuda/take.h"

CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr pointer);

/* As pretend_cuda_take(), which is called where `device` is not the current one. */
static inline CUresult pretend_library_take(CUdevice device, uint64_t bytes,
                                            enum mt_category category, const char *name,
                                            CUdeviceptr *pointer)
{
    CUdevice current;
    if (cuCtxGetDevice(&current) != CUDA_SUCCESS || current != device)
        return pretend_cuda_take(device, bytes, category, name, pointer);
    pretend_cuda_expect(category, name);
    CUresult result = cuMemAlloc_v2(pointer, bytes);
    pretend_cuda_expect(MT_CATEGORY_NONE, NULL);
    return result;
}

/* A stream may be captured, where memory is not given back by the public function. */
static inline void pretend_library_give(CUdeviceptr pointer)
{
    if (cuMemFree_v2(pointer) != CUDA_SUCCESS)
        pretend_cuda_give(pointer);
}

#endif
