/* SPDX-License-Identifier: MIT */
/* What the files of the pretended cuBLASLt share: its descriptors. A program may hold them on its
 * stack, so that each fits into what the documentation gives it. */
#ifndef MT_CUDA_BLAS_LT_H
#define MT_CUDA_BLAS_LT_H

#include "blas.h"

#define LT_MAGIC           0x6c74u
#define LT_MATMUL_MAGIC    0x6c744d4du
#define LT_LAYOUT_MAGIC    0x6c744c59u
#define LT_PREFER_MAGIC    0x6c745052u
#define LT_TRANSFORM_MAGIC 0x6c745452u
#define LT_EMULATION_MAGIC 0x6c74454du
#define LT_ALGORITHM_MAGIC 0x6c74414cu

/* cublasLtHandle_t, or a handle of cuBLAS in its place. */
struct lt_handle {
    uint32_t magic;
    CUdevice device;
};

/* cublasLtMatmulDesc_t. */
struct lt_matmul {
    uint32_t magic;
    int32_t compute_type, scale_type, pointer_mode;
    int32_t transpose_a, transpose_b, transpose_c, fill_mode;
    uint32_t epilogue;
    int32_t multiprocessors, aux_type, bias_type;
    int32_t scale_mode_a, scale_mode_b, scale_mode_c, scale_mode_d, aux_scale_mode, out_scale_mode;
    int32_t chunks_rows, chunks_columns;
    int8_t fast_accumulation;
    uint64_t bias, aux, scale_a, scale_b, scale_c, scale_d, most_d, aux_scale, aux_most, out_scale;
    uint64_t counters_in, counters_out, emulation;
    int64_t bias_stride, aux_ld, aux_stride, alpha_vector_stride, alpha_stride, beta_stride;
};

/* cublasLtMatrixLayout_t. */
struct lt_layout {
    uint32_t magic;
    uint32_t type;
    int32_t order;
    int32_t batch;
    uint64_t rows, columns;
    int64_t ld, stride, plane_offset;
    uint32_t batch_mode;
#if PRETEND_BLAS >= 13
    int32_t rows_width, ld_width;
    uint64_t rows_array, columns_array, ld_array;
#endif
};

/* cublasLtMatmulPreference_t. */
struct lt_preference {
    uint32_t magic;
    uint32_t search_mode;
    uint64_t workspace_bytes_most;
    uint64_t implementations;
    uint32_t reductions;
    uint32_t align_a, align_b, align_c, align_d;
    float waves_most;
#if PRETEND_BLAS >= 13
    uint32_t average_depth, average_rows, average_columns;
#endif
};

/* cublasLtMatrixTransformDesc_t. */
struct lt_transform {
    uint32_t magic;
    int32_t scale_type, pointer_mode, transpose_a, transpose_b;
};

/* cublasLtEmulationDesc_t. */
struct lt_emulation {
    uint32_t magic;
    int32_t strategy, special_values, mantissa_control, mantissa_bits_most, mantissa_bit_offset;
    uint64_t mantissa_bits;
};

/* cublasLtMatmulAlgo_t. A program may copy it. */
struct lt_algorithm {
    uint32_t magic;
    int32_t id;
    uint32_t tile;
    int32_t splits;
    uint32_t reduction, swizzle, option, stages;
    uint16_t inner_shape, cluster_shape;
    uint64_t unused[3];
};

/* cublasLtMatmulHeuristicResult_t. */
struct lt_heuristic {
    struct lt_algorithm algorithm;
    size_t workspace_bytes;
    int32_t status;
    float waves;
    int32_t reserved[4];
};

#if PRETEND_BLAS >= 13
#define LT_LAYOUT_WORDS 14
#define LT_PREFER_WORDS 12
#else
#define LT_LAYOUT_WORDS 8
#define LT_PREFER_WORDS 8
#endif
_Static_assert(sizeof(struct lt_matmul) <= 32 * 8, "cublasLtMatmulDescOpaque_t");
_Static_assert(sizeof(struct lt_layout) <= LT_LAYOUT_WORDS * 8, "cublasLtMatrixLayoutOpaque_t");
_Static_assert(sizeof(struct lt_preference) <= LT_PREFER_WORDS * 8, "…PreferenceOpaque_t");
_Static_assert(sizeof(struct lt_transform) <= 8 * 8, "cublasLtMatrixTransformDescOpaque_t");
_Static_assert(sizeof(struct lt_emulation) <= 8 * 8, "cublasLtEmulationDescOpaque_t");
_Static_assert(sizeof(struct lt_algorithm) == 8 * 8, "cublasLtMatmulAlgo_t");
_Static_assert(sizeof(struct lt_heuristic) == 96, "cublasLtMatmulHeuristicResult_t");

/* An attribute of a descriptor or algorithm: its number, where it stands and what it takes. */
struct lt_attribute {
    int number;
    uint16_t offset, bytes;
};

/* The attribute of `number` is written or read, as the documentation says of sizes. */
int lt_set(void *object, const struct lt_attribute *table, size_t n, int number, const void *value,
           size_t bytes);
int lt_get(const void *object, const struct lt_attribute *table, size_t n, int number, void *value,
           size_t bytes, size_t *written);

static inline int lt_is(const void *object, uint32_t magic)
{
    return object && *(const uint32_t *)object == magic;
}

static inline int lt_is_handle(const struct lt_handle *handle)
{
    return lt_is(handle, LT_MAGIC) || lt_is(handle, BLAS_MAGIC);
}

#endif
