/* SPDX-License-Identifier: MIT */
/* What cuBLAS computes, by the list of its names: a call checks its handle and takes a place in the
 * handle's stream; nothing is computed. Results that a program wants on the host are zero, and are
 * counted: what the program does with them is not what it would do on a true device. */
#include <stdarg.h>
#include <string.h>

#include "blas.h"

#include "rehearse/account.h"

#define BATCHED_ARGUMENTS_MOST 9

__attribute__((weak)) CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count,
                                                CUstream stream);

static int launch(struct blas_handle *handle)
{
    int status = blas_is_handle(handle) ? blas_settle_workspace(handle) : BLAS_NOT_INITIALIZED;
    if (status != BLAS_SUCCESS)
        return status;
    return pretend_cuda_work(handle->stream) == CUDA_SUCCESS ? BLAS_SUCCESS : BLAS_EXECUTION_FAILED;
}

/* A call with a result for the host or the device, as the handle's pointer mode says. */
static int reduce(struct blas_handle *handle, void *result, size_t bytes)
{
    int status = launch(handle);
    if (status != BLAS_SUCCESS)
        return status;
    if (!result)
        return BLAS_INVALID_VALUE;
    if (handle->pointer_mode == BLAS_POINTER_HOST) {
        struct mt_account_cuda *cuda = pretend_cuda_account();
        memset(result, 0, bytes);
        if (cuda)
            __atomic_fetch_add(&cuda->n_read_back, 1, __ATOMIC_RELAXED);
    }
    return BLAS_SUCCESS;
}

/* A call that says on the host whether its arguments are right: they are. */
static int inform(struct blas_handle *handle, int *info)
{
    int status = launch(handle);
    if (status == BLAS_SUCCESS && !info)
        return BLAS_INVALID_VALUE;
    if (status == BLAS_SUCCESS)
        *info = 0;
    return status;
}

/* A call on many matrices: argument `n` takes on the device whether each was invertible, and the
 * one behind it says how many there are. */
static int inform_of_each(struct blas_handle *handle, int n, va_list arguments)
{
    void *argument[BATCHED_ARGUMENTS_MOST + 1];
    int status = launch(handle);
    for (int i = 2; i <= n + 1; i++)
        argument[i] = va_arg(arguments, void *);
    int count = (int)(intptr_t)argument[n + 1];
    if (status == BLAS_SUCCESS && (count < 0 || !argument[n]))
        return BLAS_INVALID_VALUE;
    if (status == BLAS_SUCCESS && count && cuMemsetD32Async)
        cuMemsetD32Async((CUdeviceptr)(uintptr_t)argument[n], 0, (size_t)count, handle->stream);
    return status;
}

/* Types by cudaDataType: what a result of that type takes. */
static size_t type_bytes(int type)
{
    enum { R_32F, R_64F, R_16F, R_8I, C_32F, C_64F, C_16F, R_16BF = 14, C_16BF };
    switch (type) {
    case R_8I:
        return 1;
    case R_16F:
    case R_16BF:
        return 2;
    case R_32F:
    case C_16F:
    case C_16BF:
        return 4;
    case R_64F:
    case C_32F:
        return 8;
    case C_64F:
        return 16;
    default:
        return 0;
    }
}

#define CALL(...)
#define MISSING(...)
#define WORK(name)                                                                                 \
    PRETEND_CALL int name(struct blas_handle *handle);                                             \
    PRETEND_CALL int name(struct blas_handle *handle)                                              \
    {                                                                                              \
        return launch(handle);                                                                     \
    }
#define INFO(name, n)                                                                              \
    PRETEND_CALL int name(struct blas_handle *handle, ...);                                        \
    PRETEND_CALL int name(struct blas_handle *handle, ...)                                         \
    {                                                                                              \
        va_list arguments;                                                                         \
        va_start(arguments, handle);                                                               \
        int status = inform_of_each(handle, n, arguments);                                         \
        va_end(arguments);                                                                         \
        return status;                                                                             \
    }
#define DOT(name, integer, bytes)                                                                  \
    PRETEND_CALL int name(struct blas_handle *handle, integer n, const void *x, integer x_step,    \
                          const void *y, integer y_step, void *result);                            \
    PRETEND_CALL int name(struct blas_handle *handle, integer n, const void *x, integer x_step,    \
                          const void *y, integer y_step, void *result)                             \
    {                                                                                              \
        (void)n, (void)x, (void)x_step, (void)y, (void)y_step;                                     \
        return reduce(handle, result, bytes);                                                      \
    }
#define REDUCE(name, integer, bytes)                                                               \
    PRETEND_CALL int name(struct blas_handle *handle, integer n, const void *x, integer x_step,    \
                          void *result);                                                           \
    PRETEND_CALL int name(struct blas_handle *handle, integer n, const void *x, integer x_step,    \
                          void *result)                                                            \
    {                                                                                              \
        (void)n, (void)x, (void)x_step;                                                            \
        return reduce(handle, result, bytes);                                                      \
    }
#define FACTORS(name)                                                                              \
    PRETEND_CALL int name(struct blas_handle *handle, int m, int n, void *a, int lda, void *tau,   \
                          int *info, int batch);                                                   \
    PRETEND_CALL int name(struct blas_handle *handle, int m, int n, void *a, int lda, void *tau,   \
                          int *info, int batch)                                                    \
    {                                                                                              \
        (void)m, (void)n, (void)a, (void)lda, (void)tau, (void)batch;                              \
        return inform(handle, info);                                                               \
    }
#define LEAST(name)                                                                                \
    PRETEND_CALL int name(struct blas_handle *handle, int trans, int m, int n, int nrhs, void *a,  \
                          int lda, void *c, int ldc, int *info);                                   \
    PRETEND_CALL int name(struct blas_handle *handle, int trans, int m, int n, int nrhs, void *a,  \
                          int lda, void *c, int ldc, int *info)                                    \
    {                                                                                              \
        (void)trans, (void)m, (void)n, (void)nrhs, (void)a, (void)lda, (void)c, (void)ldc;         \
        return inform(handle, info);                                                               \
    }
#define SOLVE(name)                                                                                \
    PRETEND_CALL int name(struct blas_handle *handle, int trans, int n, int nrhs, const void *a,   \
                          int lda, const int *pivots, void *b, int ldb, int *info);                \
    PRETEND_CALL int name(struct blas_handle *handle, int trans, int n, int nrhs, const void *a,   \
                          int lda, const int *pivots, void *b, int ldb, int *info)                 \
    {                                                                                              \
        (void)trans, (void)n, (void)nrhs, (void)a, (void)lda, (void)pivots, (void)b, (void)ldb;    \
        return inform(handle, info);                                                               \
    }
#include "blas.def"

/* The same with types that are arguments. */
#define DOT_EX(name, integer)                                                                      \
    PRETEND_CALL int name(struct blas_handle *handle, integer n, const void *x, int x_type,        \
                          integer x_step, const void *y, int y_type, integer y_step, void *result, \
                          int type, int compute);                                                  \
    PRETEND_CALL int name(struct blas_handle *handle, integer n, const void *x, int x_type,        \
                          integer x_step, const void *y, int y_type, integer y_step, void *result, \
                          int type, int compute)                                                   \
    {                                                                                              \
        (void)n, (void)x, (void)x_type, (void)x_step, (void)y, (void)y_type, (void)y_step;         \
        (void)compute;                                                                             \
        return reduce(handle, result, type_bytes(type));                                           \
    }
DOT_EX(cublasDotEx, int)
DOT_EX(cublasDotEx_64, int64_t)
DOT_EX(cublasDotcEx, int)
DOT_EX(cublasDotcEx_64, int64_t)

#define REDUCE_EX(name, integer)                                                                   \
    PRETEND_CALL int name(struct blas_handle *handle, integer n, const void *x, int x_type,        \
                          integer x_step, void *result, int type, int compute);                    \
    PRETEND_CALL int name(struct blas_handle *handle, integer n, const void *x, int x_type,        \
                          integer x_step, void *result, int type, int compute)                     \
    {                                                                                              \
        (void)n, (void)x, (void)x_type, (void)x_step, (void)compute;                               \
        return reduce(handle, result, type_bytes(type));                                           \
    }
REDUCE_EX(cublasNrm2Ex, int)
REDUCE_EX(cublasNrm2Ex_64, int64_t)
REDUCE_EX(cublasAsumEx, int)
REDUCE_EX(cublasAsumEx_64, int64_t)

#define INDEX_EX(name, integer)                                                                    \
    PRETEND_CALL int name(struct blas_handle *handle, integer n, const void *x, int x_type,        \
                          integer x_step, integer *result);                                        \
    PRETEND_CALL int name(struct blas_handle *handle, integer n, const void *x, int x_type,        \
                          integer x_step, integer *result)                                         \
    {                                                                                              \
        (void)n, (void)x, (void)x_type, (void)x_step;                                              \
        return reduce(handle, result, sizeof *result);                                             \
    }
INDEX_EX(cublasIamaxEx, int)
INDEX_EX(cublasIamaxEx_64, int64_t)
INDEX_EX(cublasIaminEx, int)
INDEX_EX(cublasIaminEx_64, int64_t)
