/* SPDX-License-Identifier: MIT */
/* Small things that succeed and do nothing here. */
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "world.h"

#define TENSOR_MAP_BYTES 128

PRETEND_CALL CUresult cuProfilerStart(void)
{
    return pretend_enter();
}

PRETEND_CALL CUresult cuProfilerStop(void)
{
    return pretend_enter();
}

/* Tensor maps are read by kernels alone. */

PRETEND_CALL CUresult cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address,
                                             const uint64_t *dimensions, const uint64_t *strides,
                                             const uint32_t *box, const uint32_t *steps,
                                             int interleave, int swizzle, int promotion, int fill)
{
    (void)type, (void)strides, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    if (!map || !rank || rank > 5 || !address || !dimensions || !box || !steps)
        return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, TENSOR_MAP_BYTES);
    memcpy(map, &address, sizeof address);
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuTensorMapReplaceAddress(void *map, void *address)
{
    if (!map || !address)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(map, &address, sizeof address);
    return CUDA_SUCCESS;
}
