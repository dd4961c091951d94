/* SPDX-License-Identifier: MIT */
/* The device that a handle of cuBLAS or cuBLASLt belongs to. */
#include "rehearse/cuda/blas/blas.h"

CUresult cuInit(unsigned flags);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);

/* A thread without a context gets that of the first device, as from CUDA's runtime. */
CUdevice blas_current_device(void)
{
    CUcontext context;
    CUdevice device;
    if (cuCtxGetDevice(&device) == CUDA_SUCCESS)
        return device;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return -1;
    return 0;
}
