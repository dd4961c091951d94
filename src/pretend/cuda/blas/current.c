/* SPDX-License-Identifier: MIT */
/* What cuBLAS and cuBLASLt share: the device that a handle belongs to, and the version. */
#include "blas.h"

#include <stdlib.h>

CUresult cuInit(unsigned flags);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);

/* A thread without a context gets that of the first device, as from CUDA's runtime. */
static CUdevice current_device(void)
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

int blas_make(size_t bytes, void **made, CUdevice *device)
{
    *device = current_device();
    if (*device < 0)
        return BLAS_NOT_INITIALIZED;
    *made = calloc(1, bytes);
    return *made ? BLAS_SUCCESS : BLAS_ALLOC_FAILED;
}

int blas_property(int property, int *value)
{
    static const int parts[] = {BLAS_VERSION / 10000, BLAS_VERSION / 100 % 100, BLAS_VERSION % 100};
    if (!value || property < 0 || property > 2)
        return BLAS_INVALID_VALUE;
    *value = parts[property];
    return BLAS_SUCCESS;
}
