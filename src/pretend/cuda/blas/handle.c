/* SPDX-License-Identifier: MIT */
/* Handles of the pretended cuBLAS: what a program asks and sets, and the memory that they hold. */
#include <stdlib.h>

#include "blas.h"
#include "pretend/cuda/library_take.h"
#include "rehearse/account.h"

int cublasCreate_v2(struct blas_handle **handle);
int cublasDestroy_v2(struct blas_handle *handle);
int cublasGetVersion_v2(struct blas_handle *handle, int *version);
int cublasGetProperty(int property, int *value);
size_t cublasGetCudartVersion(void);
int cublasSetWorkspace_v2(struct blas_handle *handle, void *workspace, size_t bytes);
int cublasSetStream_v2(struct blas_handle *handle, CUstream stream);
int cublasGetStream_v2(struct blas_handle *handle, CUstream *stream);
int cublasLoggerConfigure(int is_on, int to_output, int to_error, const char *path);
int cublasSetLoggerCallback(void (*callback)(const char *));
int cublasGetLoggerCallback(void (**callback)(const char *));

#define TOLD_AGAIN_MOST 8192u /* times, of the account's room for events */

static void (*logger)(const char *);

/* CUBLAS_WORKSPACE_CONFIG: pairs of ":SIZE:COUNT", in KiB. What is no such list gives 0. */
static uint64_t configured_bytes(const char *text)
{
    uint64_t kib = 0;
    while (text && *text == ':') {
        char *end;
        unsigned long size = strtoul(text + 1, &end, 10), count;
        if (*end != ':')
            return 0;
        count = strtoul(end + 1, &end, 10);
        if (size > 1u << 24 || count > 1u << 12)
            return 0;
        kib += (uint64_t)size * count;
        text = end;
    }
    return text && *text ? 0 : kib << 10;
}

/* The sizes that cuBLAS's documentation gives for workspaces (cublasSetWorkspace). */
static uint64_t default_bytes(CUdevice device)
{
    const struct mt_gpu_spec *gpu = pretend_cuda_gpu(device);
    uint64_t configured = configured_bytes(getenv("CUBLAS_WORKSPACE_CONFIG"));
    if (configured)
        return configured;
    if (gpu && gpu->capability >= 90)
        return (gpu->capability >= 120 ? UINT64_C(12) : UINT64_C(32)) << 20;
    return UINT64_C(4) << 20;
}

/* It is taken with the first call that needs it and not with the handle: programs that give their
 * own do so right after they make a handle, and what true handles take besides is among what the
 * GPU table says of contexts. */
int blas_settle_workspace(struct blas_handle *handle)
{
    if (handle->has_workspace || handle->default_workspace)
        return BLAS_SUCCESS;
    return pretend_library_take(handle->device, default_bytes(handle->device),
                                MT_CATEGORY_WORKSPACE, "cuBLAS workspace",
                                &handle->default_workspace) == CUDA_SUCCESS
               ? BLAS_SUCCESS
               : BLAS_ALLOC_FAILED;
}

PRETEND_CALL int cublasCreate_v2(struct blas_handle **handle)
{
    struct blas_handle *made;
    void *zeros;
    CUdevice device;
    if (!handle)
        return BLAS_INVALID_VALUE;
    int status = blas_make(sizeof *made, &zeros, &device);
    if (status != BLAS_SUCCESS)
        return status;
    made = zeros;
    made->magic = BLAS_MAGIC;
    made->device = device;
    made->special_values = 0xffff;
    *handle = made;
    return BLAS_SUCCESS;
}

PRETEND_CALL int cublasDestroy_v2(struct blas_handle *handle)
{
    if (!blas_is_handle(handle))
        return BLAS_NOT_INITIALIZED;
    if (handle->default_workspace)
        pretend_library_give(handle->default_workspace);
    handle->magic = 0;
    free(handle);
    return BLAS_SUCCESS;
}

PRETEND_CALL int cublasGetVersion_v2(struct blas_handle *handle, int *version)
{
    (void)handle; /* The real one answers without a handle, too. */
    if (!version)
        return BLAS_INVALID_VALUE;
    *version = BLAS_VERSION;
    return BLAS_SUCCESS;
}

PRETEND_CALL int cublasGetProperty(int property, int *value)
{
    return blas_property(property, value);
}

PRETEND_CALL size_t cublasGetCudartVersion(void)
{
    return BLAS_CUDART;
}

/* PyTorch gives a handle its workspace anew for each product. That a place is told again says
 * something where the memory was meanwhile another's, but a long program would fill the account. */
static int is_news(struct blas_handle *handle, const void *workspace, size_t bytes)
{
    for (unsigned i = 0; i < BLAS_PLACES && i < handle->n_told; i++)
        if (handle->told[i].at == workspace && handle->told[i].bytes == bytes)
            return handle->n_told_again++ < TOLD_AGAIN_MOST;
    unsigned place = handle->n_told++ % BLAS_PLACES;
    handle->told[place].at = workspace;
    handle->told[place].bytes = bytes;
    return 1;
}

/* A workspace must be aligned to 256 bytes (cuBLAS, cublasSetWorkspace). */
PRETEND_CALL int cublasSetWorkspace_v2(struct blas_handle *handle, void *workspace, size_t bytes)
{
    if (!blas_is_handle(handle))
        return BLAS_NOT_INITIALIZED;
    if ((uintptr_t)workspace % 256)
        return BLAS_INVALID_VALUE;
    handle->has_workspace = workspace && bytes;
    if (handle->has_workspace && is_news(handle, workspace, bytes))
        pretend_cuda_usage((CUdeviceptr)(uintptr_t)workspace, bytes, MT_CATEGORY_WORKSPACE,
                           "cuBLAS workspace");
    return BLAS_SUCCESS;
}

/* A new stream brings the default workspace back (cuBLAS, cublasSetStream). */
PRETEND_CALL int cublasSetStream_v2(struct blas_handle *handle, CUstream stream)
{
    if (!blas_is_handle(handle))
        return BLAS_NOT_INITIALIZED;
    handle->has_workspace = 0;
    handle->stream = stream;
    return BLAS_SUCCESS;
}

PRETEND_CALL int cublasGetStream_v2(struct blas_handle *handle, CUstream *stream)
{
    if (!blas_is_handle(handle))
        return BLAS_NOT_INITIALIZED;
    if (!stream)
        return BLAS_INVALID_VALUE;
    *stream = handle->stream;
    return BLAS_SUCCESS;
}

/* PAIR(name, type, field, lowest, highest): cublasSetNAME and cublasGetNAME. */
#define PAIR(Name, type, field, is_valid)                                                          \
    int cublasSet##Name(struct blas_handle *handle, type value);                                   \
    int cublasGet##Name(struct blas_handle *handle, type *value);                                  \
    PRETEND_CALL int cublasSet##Name(struct blas_handle *handle, type value)                       \
    {                                                                                              \
        if (!blas_is_handle(handle))                                                               \
            return BLAS_NOT_INITIALIZED;                                                           \
        if (!(is_valid))                                                                           \
            return BLAS_INVALID_VALUE;                                                             \
        handle->field = value;                                                                     \
        return BLAS_SUCCESS;                                                                       \
    }                                                                                              \
    PRETEND_CALL int cublasGet##Name(struct blas_handle *handle, type *value)                      \
    {                                                                                              \
        if (!blas_is_handle(handle))                                                               \
            return BLAS_NOT_INITIALIZED;                                                           \
        if (!value)                                                                                \
            return BLAS_INVALID_VALUE;                                                             \
        *value = handle->field;                                                                    \
        return BLAS_SUCCESS;                                                                       \
    }

PAIR(PointerMode_v2, int, pointer_mode, value == 0 || value == 1)
PAIR(AtomicsMode, int, atomics_mode, value == 0 || value == 1)
PAIR(MathMode, int, math_mode, value >= 0)
PAIR(SmCountTarget, int, multiprocessors, value >= 0)
PAIR(EmulationStrategy, int, emulation_strategy, value >= 0)
PAIR(EmulationSpecialValuesSupport, int, special_values, 1)
PAIR(FixedPointEmulationMantissaControl, int, mantissa_control, value >= 0)
PAIR(FixedPointEmulationMaxMantissaBitCount, int, mantissa_bits_most, value >= 0)
PAIR(FixedPointEmulationMantissaBitOffset, int, mantissa_bit_offset, 1)
PAIR(FixedPointEmulationMantissaBitCountPointer, int *, mantissa_bits, 1)

PRETEND_CALL int cublasLoggerConfigure(int is_on, int to_output, int to_error, const char *path)
{
    (void)is_on, (void)to_output, (void)to_error, (void)path;
    return BLAS_SUCCESS;
}

PRETEND_CALL int cublasSetLoggerCallback(void (*callback)(const char *))
{
    logger = callback;
    return BLAS_SUCCESS;
}

PRETEND_CALL int cublasGetLoggerCallback(void (**callback)(const char *))
{
    if (!callback)
        return BLAS_INVALID_VALUE;
    *callback = logger;
    return BLAS_SUCCESS;
}
