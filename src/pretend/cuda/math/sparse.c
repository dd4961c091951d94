/* SPDX-License-Identifier: MIT */
/* cuSPARSE's handles, matrices and vectors: what is set can be read again. */
#include <stdlib.h>
#include <string.h>

#include "math.h"
#include "pretend/cuda/call.h"
#include "rehearse/account.h"

enum { SUCCESS = 0, NOT_INITIALIZED = 1, ALLOC_FAILED = 2, INVALID_VALUE = 3 };

typedef struct pretend_math_object object;

CALL(cusparseSetStream, (object * handle, CUstream stream), {
    if (!handle)
        return NOT_INITIALIZED;
    handle->stream = stream;
    return SUCCESS;
})
CALL(cusparseGetStream, (object * handle, CUstream *stream), {
    if (!handle)
        return NOT_INITIALIZED;
    if (!stream)
        return INVALID_VALUE;
    *stream = handle->stream;
    return SUCCESS;
})
CALL(cusparseSetPointerMode, (object * handle, int mode), {
    if (!handle)
        return NOT_INITIALIZED;
    handle->pointer_mode = mode;
    return SUCCESS;
})
CALL(cusparseGetPointerMode, (object * handle, int *mode), {
    if (!handle)
        return NOT_INITIALIZED;
    if (!mode)
        return INVALID_VALUE;
    *mode = handle->pointer_mode;
    return SUCCESS;
})

/* 12.5.8 comes with CUDA 12.8; the soname is the same in CUDA 13. */
CALL(cusparseGetVersion, (void *handle, int *version), {
    if (!handle)
        return NOT_INITIALIZED;
    if (!version)
        return INVALID_VALUE;
    *version = 12508;
    return SUCCESS;
})
CALL(cusparseGetProperty, (int property, int *value), {
    static const int version[] = {12, 5, 8};
    if (!value || property < 0 || property > 2)
        return INVALID_VALUE;
    *value = version[property];
    return SUCCESS;
})

static const struct {
    const char *name, *words;
} errors[] = {
    {"CUSPARSE_STATUS_SUCCESS", "success"},
    {"CUSPARSE_STATUS_NOT_INITIALIZED", "initialization error"},
    {"CUSPARSE_STATUS_ALLOC_FAILED", "out of memory"},
    {"CUSPARSE_STATUS_INVALID_VALUE", "invalid value"},
    {"CUSPARSE_STATUS_ARCH_MISMATCH", "architecture mismatch"},
    {"CUSPARSE_STATUS_MAPPING_ERROR", "texture mapping error"},
    {"CUSPARSE_STATUS_EXECUTION_FAILED", "kernel launch failure"},
    {"CUSPARSE_STATUS_INTERNAL_ERROR", "internal error"},
    {"CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED", "matrix type not supported"},
    {"CUSPARSE_STATUS_ZERO_PIVOT", "zero pivot"},
    {"CUSPARSE_STATUS_NOT_SUPPORTED", "operation not supported"},
    {"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", "insufficient resources"},
};

PRETEND_CALL const char *cusparseGetErrorName(unsigned status);
PRETEND_CALL const char *cusparseGetErrorName(unsigned status)
{
    return status < sizeof errors / sizeof *errors ? errors[status].name : "unrecognized error";
}

PRETEND_CALL const char *cusparseGetErrorString(unsigned status);
PRETEND_CALL const char *cusparseGetErrorString(unsigned status)
{
    return status < sizeof errors / sizeof *errors ? errors[status].words : "unrecognized error";
}

/* The older descriptor of matrices: its functions return its values as results. */
enum { TYPE, FILL, DIAGONAL, BASE };

#define MATRIX_VALUE(name, place)                                                                  \
    CALL(cusparseSetMat##name, (object * of, int value), {                                         \
        if (!of)                                                                                   \
            return INVALID_VALUE;                                                                  \
        of->values[place] = value;                                                                 \
        return SUCCESS;                                                                            \
    })                                                                                             \
    CALL(cusparseGetMat##name, (const object *of), return of ? of->values[place] : 0;)
MATRIX_VALUE(Type, TYPE)
MATRIX_VALUE(FillMode, FILL)
MATRIX_VALUE(DiagType, DIAGONAL)
MATRIX_VALUE(IndexBase, BASE)

/* What cusparseSpMatGetFormat() answers. */
enum { VECTOR, CSR = 1, CSC = 2, COO = 3, BLOCKED_ELL = 5, BSR = 6, SLICED_ELL = 7, DENSE };

/* A matrix or vector of the generic interface. A sparse one has offsets (or row indices), indices
 * and values, a dense one has values. */
struct matrix {
    int format;
    int64_t rows, columns, n_values;
    int64_t block_rows, block_columns; /* or the width and the columns of ELL */
    void *offsets, *indices, *values;
    int offset_type, index_type, value_type, base, order;
    int64_t leading;
    int64_t batch_stride;
    int batch_count;
    int attributes[4];
};

static int make(struct matrix **made, const struct matrix *of)
{
    if (!made || of->rows < 0 || of->columns < 0 || of->n_values < 0)
        return INVALID_VALUE;
    *made = malloc(sizeof **made);
    if (!*made)
        return ALLOC_FAILED;
    **made = *of;
    (*made)->batch_count = 1;
    return SUCCESS;
}

/* Each call comes again for matrices that are only read. */
#define BOTH(prefix, suffix, arguments, ...)                                                       \
    CALL(prefix##suffix, arguments, __VA_ARGS__)                                                   \
    CALL(prefix##Const##suffix, arguments, __VA_ARGS__)

BOTH(cusparseCreate, SpVec,
     (struct matrix * *made, int64_t size, int64_t n, void *indices, void *values, int index_type,
      int base, int value_type),
     return make(made, &(struct matrix){.format = VECTOR,
                                        .rows = size,
                                        .n_values = n,
                                        .indices = indices,
                                        .values = values,
                                        .index_type = index_type,
                                        .base = base,
                                        .value_type = value_type});)
BOTH(cusparseCreate, DnVec, (struct matrix * *made, int64_t size, void *values, int value_type),
     return make(made,
                 &(struct matrix){
                     .format = DENSE, .rows = size, .values = values, .value_type = value_type});)
BOTH(cusparseCreate, DnMat,
     (struct matrix * *made, int64_t rows, int64_t columns, int64_t leading, void *values,
      int value_type, int order),
     return make(made, &(struct matrix){.format = DENSE,
                                        .rows = rows,
                                        .columns = columns,
                                        .leading = leading,
                                        .values = values,
                                        .value_type = value_type,
                                        .order = order});)

#define COMPRESSED                                                                                 \
    struct matrix **made, int64_t rows, int64_t columns, int64_t n, void *offsets, void *indices,  \
        void *values, int offset_type, int index_type, int base, int value_type

static int compressed(int format, COMPRESSED)
{
    return make(made, &(struct matrix){.format = format,
                                       .rows = rows,
                                       .columns = columns,
                                       .n_values = n,
                                       .offsets = offsets,
                                       .indices = indices,
                                       .values = values,
                                       .offset_type = offset_type,
                                       .index_type = index_type,
                                       .base = base,
                                       .value_type = value_type});
}

BOTH(cusparseCreate, Csr, (COMPRESSED),
     return compressed(CSR, made, rows, columns, n, offsets, indices, values, offset_type,
                       index_type, base, value_type);)
BOTH(cusparseCreate, Csc, (COMPRESSED),
     return compressed(CSC, made, rows, columns, n, offsets, indices, values, offset_type,
                       index_type, base, value_type);)
BOTH(cusparseCreate, Coo,
     (struct matrix * *made, int64_t rows, int64_t columns, int64_t n, void *row_indices,
      void *indices, void *values, int index_type, int base, int value_type),
     return compressed(COO, made, rows, columns, n, row_indices, indices, values, index_type,
                       index_type, base, value_type);)
BOTH(cusparseCreate, Bsr,
     (struct matrix * *made, int64_t rows, int64_t columns, int64_t n, int64_t block_rows,
      int64_t block_columns, void *offsets, void *indices, void *values, int offset_type,
      int index_type, int base, int value_type, int order),
     return make(made, &(struct matrix){.format = BSR,
                                        .rows = rows,
                                        .columns = columns,
                                        .n_values = n,
                                        .block_rows = block_rows,
                                        .block_columns = block_columns,
                                        .offsets = offsets,
                                        .indices = indices,
                                        .values = values,
                                        .offset_type = offset_type,
                                        .index_type = index_type,
                                        .base = base,
                                        .value_type = value_type,
                                        .order = order});)
BOTH(cusparseCreate, BlockedEll,
     (struct matrix * *made, int64_t rows, int64_t columns, int64_t width, int64_t ell_columns,
      void *indices, void *values, int index_type, int base, int value_type),
     return make(made, &(struct matrix){.format = BLOCKED_ELL,
                                        .rows = rows,
                                        .columns = columns,
                                        .block_rows = width,
                                        .block_columns = ell_columns,
                                        .indices = indices,
                                        .values = values,
                                        .index_type = index_type,
                                        .base = base,
                                        .value_type = value_type});)
BOTH(cusparseCreate, SlicedEll,
     (struct matrix * *made, int64_t rows, int64_t columns, int64_t n, int64_t padded,
      int64_t slice, void *offsets, void *indices, void *values, int offset_type, int index_type,
      int base, int value_type),
     return make(made, &(struct matrix){.format = SLICED_ELL,
                                        .rows = rows,
                                        .columns = columns,
                                        .n_values = n,
                                        .block_rows = slice,
                                        .block_columns = padded,
                                        .offsets = offsets,
                                        .indices = indices,
                                        .values = values,
                                        .offset_type = offset_type,
                                        .index_type = index_type,
                                        .base = base,
                                        .value_type = value_type});)

#define TELL(into, value)                                                                          \
    do {                                                                                           \
        if (into)                                                                                  \
            *(into) = (value);                                                                     \
    } while (0)

BOTH(cusparse, SpVecGet,
     (const struct matrix *m, int64_t *size, int64_t *n, void **indices, void **values,
      int *index_type, int *base, int *value_type),
     {
         if (!m)
             return INVALID_VALUE;
         TELL(size, m->rows);
         TELL(n, m->n_values);
         TELL(indices, m->indices);
         TELL(values, m->values);
         TELL(index_type, m->index_type);
         TELL(base, m->base);
         TELL(value_type, m->value_type);
         return SUCCESS;
     })
BOTH(cusparse, DnVecGet, (const struct matrix *m, int64_t *size, void **values, int *value_type), {
    if (!m)
        return INVALID_VALUE;
    TELL(size, m->rows);
    TELL(values, m->values);
    TELL(value_type, m->value_type);
    return SUCCESS;
})
BOTH(cusparse, DnMatGet,
     (const struct matrix *m, int64_t *rows, int64_t *columns, int64_t *leading, void **values,
      int *value_type, int *order),
     {
         if (!m)
             return INVALID_VALUE;
         TELL(rows, m->rows);
         TELL(columns, m->columns);
         TELL(leading, m->leading);
         TELL(values, m->values);
         TELL(value_type, m->value_type);
         TELL(order, m->order);
         return SUCCESS;
     })
#define COMPRESSED_GET(name)                                                                       \
    BOTH(cusparse, name,                                                                           \
         (const struct matrix *m, int64_t *rows, int64_t *columns, int64_t *n, void **offsets,     \
          void **indices, void **values, int *offset_type, int *index_type, int *base,             \
          int *value_type),                                                                        \
         {                                                                                         \
             if (!m)                                                                               \
                 return INVALID_VALUE;                                                             \
             TELL(rows, m->rows);                                                                  \
             TELL(columns, m->columns);                                                            \
             TELL(n, m->n_values);                                                                 \
             TELL(offsets, m->offsets);                                                            \
             TELL(indices, m->indices);                                                            \
             TELL(values, m->values);                                                              \
             TELL(offset_type, m->offset_type);                                                    \
             TELL(index_type, m->index_type);                                                      \
             TELL(base, m->base);                                                                  \
             TELL(value_type, m->value_type);                                                      \
             return SUCCESS;                                                                       \
         })
COMPRESSED_GET(CsrGet)
COMPRESSED_GET(CscGet)
BOTH(cusparse, CooGet,
     (const struct matrix *m, int64_t *rows, int64_t *columns, int64_t *n, void **row_indices,
      void **indices, void **values, int *index_type, int *base, int *value_type),
     return cusparseCsrGet(m, rows, columns, n, row_indices, indices, values, NULL, index_type,
                           base, value_type);)
BOTH(cusparse, BlockedEllGet,
     (const struct matrix *m, int64_t *rows, int64_t *columns, int64_t *width, int64_t *ell_columns,
      void **indices, void **values, int *index_type, int *base, int *value_type),
     {
         if (!m)
             return INVALID_VALUE;
         TELL(width, m->block_rows);
         TELL(ell_columns, m->block_columns);
         return cusparseCsrGet(m, rows, columns, NULL, NULL, indices, values, NULL, index_type,
                               base, value_type);
     })

#define VALUES(name)                                                                               \
    BOTH(cusparse, name##GetValues, (const struct matrix *m, void **values), {                     \
        if (!m || !values)                                                                         \
            return INVALID_VALUE;                                                                  \
        *values = m->values;                                                                       \
        return SUCCESS;                                                                            \
    })                                                                                             \
    CALL(cusparse##name##SetValues, (struct matrix * m, void *values), {                           \
        if (!m)                                                                                    \
            return INVALID_VALUE;                                                                  \
        m->values = values;                                                                        \
        return SUCCESS;                                                                            \
    })
VALUES(SpVec)
VALUES(DnVec)
VALUES(SpMat)
VALUES(DnMat)

#define SET_POINTERS(name)                                                                         \
    CALL(cusparse##name##SetPointers,                                                              \
         (struct matrix * m, void *offsets, void *indices, void *values), {                        \
             if (!m)                                                                               \
                 return INVALID_VALUE;                                                             \
             m->offsets = offsets;                                                                 \
             m->indices = indices;                                                                 \
             m->values = values;                                                                   \
             return SUCCESS;                                                                       \
         })
SET_POINTERS(Csr)
SET_POINTERS(Csc)
SET_POINTERS(Coo)

static int set_batch(struct matrix *m, int count, int64_t stride)
{
    if (!m || count < 1 || stride < 0)
        return INVALID_VALUE;
    m->batch_count = count;
    m->batch_stride = stride;
    return SUCCESS;
}

CALL(cusparseCooSetStridedBatch, (struct matrix * m, int count, int64_t stride),
     return set_batch(m, count, stride);)
CALL(cusparseDnMatSetStridedBatch, (struct matrix * m, int count, int64_t stride),
     return set_batch(m, count, stride);)
CALL(cusparseCsrSetStridedBatch, (struct matrix * m, int count, int64_t offsets, int64_t stride), {
    (void)offsets;
    return set_batch(m, count, stride);
})
CALL(cusparseBsrSetStridedBatch,
     (struct matrix * m, int count, int64_t offsets, int64_t indices, int64_t stride), {
         (void)offsets;
         (void)indices;
         return set_batch(m, count, stride);
     })
CALL(cusparseDnMatGetStridedBatch, (const struct matrix *m, int *count, int64_t *stride), {
    if (!m || !count || !stride)
        return INVALID_VALUE;
    *count = m->batch_count;
    *stride = m->batch_stride;
    return SUCCESS;
})

#define ASK(name, member)                                                                          \
    CALL(cusparse##name, (const struct matrix *m, int *value), {                                   \
        if (!m || !value)                                                                          \
            return INVALID_VALUE;                                                                  \
        *value = m->member;                                                                        \
        return SUCCESS;                                                                            \
    })
ASK(SpVecGetIndexBase, base)
ASK(SpMatGetIndexBase, base)
ASK(SpMatGetFormat, format)
ASK(SpMatGetStridedBatch, batch_count)

/* A product's number of values is known on the device alone. */
CALL(cusparseSpMatGetSize, (const struct matrix *m, int64_t *rows, int64_t *columns, int64_t *n), {
    static int told;
    static const object handle;
    int count;
    if (!m || !rows || !columns || !n)
        return INVALID_VALUE;
    *rows = m->rows;
    *columns = m->columns;
    *n = m->n_values;
    if (m->n_values == 0 && m->rows > 0 && m->columns > 0)
        pretend_math_answer(&handle, &count, 0, "cusparseSpMatGetSize", &told);
    return SUCCESS;
})

/* Bytes of a number of a cudaDataType that results have. */
static size_t number_bytes(int type)
{
    enum { R_64F = 1, C_32F = 4, C_64F = 5 };
    return type == C_64F ? 16 : type == R_64F || type == C_32F ? 8 : 4;
}

/* The product of two vectors, which a program may want on the host. */
CALL(cusparseSpVV,
     (object * handle, int operation, const struct matrix *x, const struct matrix *y, void *result,
      int type, void *workspace),
     {
         struct mt_account_cuda *account = pretend_cuda_account();
         (void)operation;
         (void)workspace;
         if (!handle)
             return NOT_INITIALIZED;
         if (!x || !y || !result)
             return INVALID_VALUE;
         if (handle->pointer_mode != 0)
             return SUCCESS;
         memset(result, 0, number_bytes(type));
         if (account)
             __atomic_fetch_add(&account->n_read_back, 1, __ATOMIC_RELAXED);
         return SUCCESS;
     })

/* How a matrix is filled, and its diagonal. */
CALL(cusparseSpMatSetAttribute,
     (struct matrix * m, unsigned attribute, const int *value, size_t bytes), {
         if (!m || !value || attribute > 3 || bytes != sizeof *value)
             return INVALID_VALUE;
         m->attributes[attribute] = *value;
         return SUCCESS;
     })
CALL(cusparseSpMatGetAttribute,
     (const struct matrix *m, unsigned attribute, int *value, size_t bytes), {
         if (!m || !value || attribute > 3 || bytes != sizeof *value)
             return INVALID_VALUE;
         *value = m->attributes[attribute];
         return SUCCESS;
     })
CALL(cusparseCreateIdentityPermutation, (object * handle, int n, int *permutation), {
    (void)permutation;
    return !handle ? NOT_INITIALIZED : n < 0 ? INVALID_VALUE : SUCCESS;
})

#define DESTROYS(name)                                                                             \
    CALL(cusparseDestroy##name, (struct matrix * m), {                                             \
        free(m);                                                                                   \
        return SUCCESS;                                                                            \
    })
DESTROYS(SpVec)
DESTROYS(DnVec)
DESTROYS(SpMat)
DESTROYS(DnMat)
