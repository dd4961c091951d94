/* SPDX-License-Identifier: MIT */
/* What the files of the pretended cuBLAS share. Types and values are those of the documentation of
 * cuBLAS, versions 12 and 13. */
#ifndef MT_CUDA_BLAS_BLAS_H
#define MT_CUDA_BLAS_BLAS_H

#include <stddef.h>
#include <stdint.h>

#include "pretend/cuda/pretend_cuda.h"

#define BLAS_SUCCESS          0
#define BLAS_NOT_INITIALIZED  1
#define BLAS_ALLOC_FAILED     3
#define BLAS_INVALID_VALUE    7
#define BLAS_EXECUTION_FAILED 13
#define BLAS_NOT_SUPPORTED    15

#define BLAS_POINTER_HOST 0

/* The versions of cuBLAS and cuBLASLt, and of the toolkit that they come with. */
#if PRETEND_BLAS == 12
#define BLAS_VERSION 120804
#define BLAS_CUDART  12080u
#else
#define BLAS_VERSION 130401
#define BLAS_CUDART  13020u
#endif

#define BLAS_PLACES 16

/* cublasHandle_t. Not to be used by two threads at once, as the real one. */
struct blas_handle {
    uint32_t magic; /* BLAS_MAGIC while it lives */
    CUdevice device;
    CUstream stream;
    CUdeviceptr default_workspace; /* 0: none yet */
    int has_workspace;             /* the program gave one */
    struct {
        const void *at;
        size_t bytes;
    } told[BLAS_PLACES]; /* workspaces that the account has heard of, the last ones */
    unsigned n_told;
    unsigned n_told_again;
    int pointer_mode;
    int atomics_mode;
    int math_mode;
    int multiprocessors; /* 0: all */
    int emulation_strategy;
    int special_values;
    int mantissa_control;
    int mantissa_bits_most;
    int mantissa_bit_offset;
    int *mantissa_bits; /* the program's, on the device */
};

#define BLAS_MAGIC 0x626c6173u

static inline int blas_is_handle(const struct blas_handle *handle)
{
    return handle && handle->magic == BLAS_MAGIC;
}

/* Takes the default workspace of a handle whose program gave none; BLAS_ALLOC_FAILED. */
int blas_settle_workspace(struct blas_handle *handle);

/* Makes a handle of `bytes` zeros in *made for the device that is current. Errors:
 * BLAS_NOT_INITIALIZED where CUDA cannot be started, BLAS_ALLOC_FAILED. */
int blas_make(size_t bytes, void **made, CUdevice *device);

/* A part of the version, as libraryPropertyType counts them: major, minor, patch. Errors:
 * BLAS_INVALID_VALUE. */
int blas_property(int property, int *value);

#endif
