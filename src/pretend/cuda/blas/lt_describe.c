/* SPDX-License-Identifier: MIT */
/* Descriptors of the pretended cuBLASLt: made, set, read and destroyed. */
#include <stdlib.h>
#include <string.h>

#include "lt.h"

static const struct lt_attribute *find(const struct lt_attribute *table, size_t n, int number)
{
    for (size_t i = 0; i < n; i++)
        if (table[i].number == number)
            return &table[i];
    return NULL;
}

int lt_set(void *object, const struct lt_attribute *table, size_t n, int number, const void *value,
           size_t bytes)
{
    const struct lt_attribute *attribute = find(table, n, number);
    if (!attribute || !value || bytes != attribute->bytes)
        return BLAS_INVALID_VALUE;
    memcpy((char *)object + attribute->offset, value, bytes);
    return BLAS_SUCCESS;
}

int lt_get(const void *object, const struct lt_attribute *table, size_t n, int number, void *value,
           size_t bytes, size_t *written)
{
    const struct lt_attribute *attribute = find(table, n, number);
    if (!attribute || (!bytes && !written) || (bytes && (!value || bytes != attribute->bytes)))
        return BLAS_INVALID_VALUE;
    if (bytes)
        memcpy(value, (const char *)object + attribute->offset, bytes);
    if (written)
        *written = attribute->bytes;
    return BLAS_SUCCESS;
}

#define AT(number, type, field)                                                                    \
    {                                                                                              \
        number, (uint16_t)offsetof(type, field), (uint16_t)sizeof(((type *)0)->field)              \
    }

static const struct lt_attribute matmul_attributes[] = {
#define M(number, field) AT(number, struct lt_matmul, field)
    M(0, compute_type),
    M(1, scale_type),
    M(2, pointer_mode),
    M(3, transpose_a),
    M(4, transpose_b),
    M(5, transpose_c),
    M(6, fill_mode),
    M(7, epilogue),
    M(8, bias),
    M(10, bias_stride),
    M(11, aux),
    M(12, aux_ld),
    M(13, aux_stride),
    M(14, alpha_vector_stride),
    M(15, multiprocessors),
    M(17, scale_a),
    M(18, scale_b),
    M(19, scale_c),
    M(20, scale_d),
    M(21, most_d),
    M(22, aux_type),
    M(23, aux_scale),
    M(24, aux_most),
    M(25, fast_accumulation),
    M(26, bias_type),
    M(27, chunks_rows),
    M(28, chunks_columns),
    M(29, counters_in),
    M(30, counters_out),
    M(31, scale_mode_a),
    M(32, scale_mode_b),
    M(33, scale_mode_c),
    M(34, scale_mode_d),
    M(35, aux_scale_mode),
    M(36, out_scale),
    M(37, out_scale_mode),
    M(38, emulation),
    M(39, alpha_stride),
    M(40, beta_stride),
};

static const struct lt_attribute layout_attributes[] = {
#define L(number, field) AT(number, struct lt_layout, field)
    L(0, type),       L(1, order),          L(2, rows),         L(3, columns),     L(4, ld),
    L(5, batch),      L(6, stride),         L(7, plane_offset), L(8, batch_mode),
#if PRETEND_BLAS >= 13
    L(9, rows_array), L(10, columns_array), L(11, ld_array),    L(12, rows_width), L(13, ld_width),
#endif
};

static const struct lt_attribute preference_attributes[] = {
#define P(number, field) AT(number, struct lt_preference, field)
    P(0, search_mode),      P(1, workspace_bytes_most),
    P(3, reductions),       P(5, align_a),
    P(6, align_b),          P(7, align_c),
    P(8, align_d),          P(9, waves_most),
    P(12, implementations),
#if PRETEND_BLAS >= 13
    P(13, average_depth),   P(14, average_rows),
    P(15, average_columns),
#endif
};

static const struct lt_attribute transform_attributes[] = {
#define T(number, field) AT(number, struct lt_transform, field)
    T(0, scale_type), T(1, pointer_mode), T(2, transpose_a), T(3, transpose_b)};

static const struct lt_attribute emulation_attributes[] = {
#define E(number, field) AT(number, struct lt_emulation, field)
    E(0, strategy),           E(1, special_values),      E(2, mantissa_control),
    E(3, mantissa_bits_most), E(4, mantissa_bit_offset), E(5, mantissa_bits)};

/* Destroy, set and get of one kind of descriptor. */
#define DESCRIPTOR(Name, type, magic_word, table)                                                  \
    int cublasLt##Name##Destroy(type *object);                                                     \
    int cublasLt##Name##SetAttribute(type *object, int number, const void *value, size_t bytes);   \
    int cublasLt##Name##GetAttribute(const type *object, int number, void *value, size_t bytes,    \
                                     size_t *written);                                             \
    PRETEND_CALL int cublasLt##Name##Destroy(type *object)                                         \
    {                                                                                              \
        if (object && object->magic != (magic_word))                                               \
            return BLAS_INVALID_VALUE;                                                             \
        if (object)                                                                                \
            object->magic = 0;                                                                     \
        free(object);                                                                              \
        return BLAS_SUCCESS;                                                                       \
    }                                                                                              \
    PRETEND_CALL int cublasLt##Name##SetAttribute(type *object, int number, const void *value,     \
                                                  size_t bytes)                                    \
    {                                                                                              \
        if (!lt_is(object, magic_word))                                                            \
            return BLAS_INVALID_VALUE;                                                             \
        return lt_set(object, table, sizeof table / sizeof *table, number, value, bytes);          \
    }                                                                                              \
    PRETEND_CALL int cublasLt##Name##GetAttribute(const type *object, int number, void *value,     \
                                                  size_t bytes, size_t *written)                   \
    {                                                                                              \
        if (!lt_is(object, magic_word))                                                            \
            return BLAS_INVALID_VALUE;                                                             \
        return lt_get(object, table, sizeof table / sizeof *table, number, value, bytes, written); \
    }

DESCRIPTOR(MatmulDesc, struct lt_matmul, LT_MATMUL_MAGIC, matmul_attributes)
DESCRIPTOR(MatrixLayout, struct lt_layout, LT_LAYOUT_MAGIC, layout_attributes)
DESCRIPTOR(MatmulPreference, struct lt_preference, LT_PREFER_MAGIC, preference_attributes)
DESCRIPTOR(MatrixTransformDesc, struct lt_transform, LT_TRANSFORM_MAGIC, transform_attributes)
DESCRIPTOR(EmulationDesc, struct lt_emulation, LT_EMULATION_MAGIC, emulation_attributes)

/* A descriptor that was filled in on the stack is copied to one of its own. */
static int keep(void **object, const void *made, size_t bytes)
{
    void *copy = object ? malloc(bytes) : NULL;
    if (!object)
        return BLAS_INVALID_VALUE;
    if (!copy)
        return BLAS_ALLOC_FAILED;
    memcpy(copy, made, bytes);
    *object = copy;
    return BLAS_SUCCESS;
}

/* The same into the program's memory of `room` bytes. */
static int put(void *object, size_t room, const void *made, size_t bytes)
{
    if (!object)
        return BLAS_INVALID_VALUE;
    if (room < bytes)
        return BLAS_ALLOC_FAILED;
    memcpy(object, made, bytes);
    return BLAS_SUCCESS;
}

static struct lt_matmul matmul_of(int compute_type, int scale_type)
{
    return (struct lt_matmul){.magic = LT_MATMUL_MAGIC,
                              .compute_type = compute_type,
                              .scale_type = scale_type,
                              .fill_mode = 2,
                              .epilogue = 1,
                              .aux_type = -1,
                              .bias_type = -1};
}

static struct lt_layout layout_of(uint32_t type, uint64_t rows, uint64_t columns, int64_t ld)
{
    return (struct lt_layout){.magic = LT_LAYOUT_MAGIC,
                              .type = type,
                              .rows = rows,
                              .columns = columns,
                              .ld = ld,
                              .batch = 1};
}

static struct lt_preference preference_of(void)
{
    return (struct lt_preference){.magic = LT_PREFER_MAGIC,
                                  .reductions = 7,
                                  .align_a = 256,
                                  .align_b = 256,
                                  .align_c = 256,
                                  .align_d = 256,
                                  .implementations = UINT64_MAX};
}

static struct lt_transform transform_of(int scale_type)
{
    return (struct lt_transform){.magic = LT_TRANSFORM_MAGIC, .scale_type = scale_type};
}

static struct lt_emulation emulation_of(void)
{
    return (struct lt_emulation){.magic = LT_EMULATION_MAGIC, .special_values = 0xffff};
}

int cublasLtMatmulDescCreate(void **object, int compute_type, int scale_type);
int cublasLtMatmulDescInit_internal(void *object, size_t room, int compute_type, int scale_type);
int cublasLtMatrixLayoutCreate(void **object, int type, uint64_t rows, uint64_t columns,
                               int64_t ld);
int cublasLtMatrixLayoutInit_internal(void *object, size_t room, int type, uint64_t rows,
                                      uint64_t columns, int64_t ld);
int cublasLtMatmulPreferenceCreate(void **object);
int cublasLtMatmulPreferenceInit_internal(void *object, size_t room);
int cublasLtMatrixTransformDescCreate(void **object, int scale_type);
int cublasLtMatrixTransformDescInit_internal(void *object, size_t room, int scale_type);
int cublasLtEmulationDescCreate(void **object);
int cublasLtEmulationDescInit_internal(void *object, size_t room);

PRETEND_CALL int cublasLtMatmulDescCreate(void **object, int compute_type, int scale_type)
{
    struct lt_matmul made = matmul_of(compute_type, scale_type);
    return keep(object, &made, sizeof made);
}

PRETEND_CALL int cublasLtMatmulDescInit_internal(void *object, size_t room, int compute_type,
                                                 int scale_type)
{
    struct lt_matmul made = matmul_of(compute_type, scale_type);
    return put(object, room, &made, sizeof made);
}

PRETEND_CALL int cublasLtMatrixLayoutCreate(void **object, int type, uint64_t rows,
                                            uint64_t columns, int64_t ld)
{
    struct lt_layout made = layout_of((uint32_t)type, rows, columns, ld);
    return keep(object, &made, sizeof made);
}

PRETEND_CALL int cublasLtMatrixLayoutInit_internal(void *object, size_t room, int type,
                                                   uint64_t rows, uint64_t columns, int64_t ld)
{
    struct lt_layout made = layout_of((uint32_t)type, rows, columns, ld);
    return put(object, room, &made, sizeof made);
}

PRETEND_CALL int cublasLtMatmulPreferenceCreate(void **object)
{
    struct lt_preference made = preference_of();
    return keep(object, &made, sizeof made);
}

PRETEND_CALL int cublasLtMatmulPreferenceInit_internal(void *object, size_t room)
{
    struct lt_preference made = preference_of();
    return put(object, room, &made, sizeof made);
}

PRETEND_CALL int cublasLtMatrixTransformDescCreate(void **object, int scale_type)
{
    struct lt_transform made = transform_of(scale_type);
    return keep(object, &made, sizeof made);
}

PRETEND_CALL int cublasLtMatrixTransformDescInit_internal(void *object, size_t room, int scale_type)
{
    struct lt_transform made = transform_of(scale_type);
    return put(object, room, &made, sizeof made);
}

PRETEND_CALL int cublasLtEmulationDescCreate(void **object)
{
    struct lt_emulation made = emulation_of();
    return keep(object, &made, sizeof made);
}

PRETEND_CALL int cublasLtEmulationDescInit_internal(void *object, size_t room)
{
    struct lt_emulation made = emulation_of();
    return put(object, room, &made, sizeof made);
}
