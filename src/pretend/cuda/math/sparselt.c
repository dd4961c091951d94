/* SPDX-License-Identifier: MIT */
/* cuSPARSELt: descriptors lie in memory of the program, which has 512 bytes for each (1024 in
 * releases before 0.8), and give back what was set. */
#include <string.h>

#include "math.h"
#include "pretend/cuda/call.h"
#include "pretend/cuda/unknown.h"

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 3, NOT_SUPPORTED = 10 };
enum { HANDLE = 0x6d74, MATRIX, PRODUCT, CHOICE, PLAN };
enum { CONFIG_ID = 0, CONFIG_ID_MAX = 1, ATTRIBUTES_MAX = 24 };
enum { DATA_R_8I = 3 };

struct object {
    int kind;
    int type;
    int is_structured;
    int64_t rows, columns, leading;
    uint64_t attributes[ATTRIBUTES_MAX];
};

_Static_assert(sizeof(struct object) <= 512, "descriptors have 512 bytes");

static int is(const struct object *of, int kind)
{
    return of && of->kind == kind;
}

static int start(const struct object *handle, struct object *of, int kind)
{
    if (!is(handle, HANDLE))
        return NOT_INITIALIZED;
    if (!of)
        return INVALID_VALUE;
    memset(of, 0, sizeof *of);
    of->kind = kind;
    return SUCCESS;
}

CALL(cusparseLtInit, (struct object * handle), {
    if (!handle)
        return INVALID_VALUE;
    memset(handle, 0, sizeof *handle);
    handle->kind = HANDLE;
    return SUCCESS;
})
CALL(cusparseLtDestroy, (struct object * handle), {
    if (!is(handle, HANDLE))
        return NOT_INITIALIZED;
    handle->kind = 0;
    return SUCCESS;
})

static const int version[] = {0, 7, 1};

CALL(cusparseLtGetVersion, (const struct object *handle, int *value), {
    if (!is(handle, HANDLE) || !value)
        return INVALID_VALUE;
    *value = version[0] * 1000 + version[1] * 100 + version[2];
    return SUCCESS;
})
CALL(cusparseLtGetProperty, (int property, int *value), {
    if (!value || property < 0 || property > 2)
        return INVALID_VALUE;
    *value = version[property];
    return SUCCESS;
})

static int matrix(const struct object *handle, struct object *of, const int64_t shape[3], int type,
                  int is_structured)
{
    int status = start(handle, of, MATRIX);
    if (status != SUCCESS)
        return status;
    if (shape[0] < 1 || shape[1] < 1 || shape[2] < 1)
        return INVALID_VALUE;
    of->rows = shape[0];
    of->columns = shape[1];
    of->leading = shape[2];
    of->type = type;
    of->is_structured = is_structured;
    return SUCCESS;
}

CALL(cusparseLtDenseDescriptorInit,
     (const struct object *handle, struct object *of, int64_t rows, int64_t columns,
      int64_t leading, uint32_t alignment, int type, int order),
     {
         (void)alignment;
         (void)order;
         return matrix(handle, of, (int64_t[]){rows, columns, leading}, type, 0);
     })
CALL(cusparseLtStructuredDescriptorInit,
     (const struct object *handle, struct object *of, int64_t rows, int64_t columns,
      int64_t leading, uint32_t alignment, int type, int order, int sparsity),
     {
         (void)alignment;
         (void)order;
         (void)sparsity;
         return matrix(handle, of, (int64_t[]){rows, columns, leading}, type, 1);
     })

#define END(name, of_kind)                                                                         \
    CALL(name, (struct object * of), return is(of, of_kind) ? SUCCESS : INVALID_VALUE;)
END(cusparseLtMatDescriptorDestroy, MATRIX)
END(cusparseLtMatmulPlanDestroy, PLAN)
END(cusparseLtMatmulAlgSelectionDestroy, CHOICE)

#define ATTRIBUTES(name, of_kind)                                                                  \
    CALL(name##SetAttribute,                                                                       \
         (const struct object *handle, struct object *of, unsigned attribute, const void *value,   \
          size_t bytes),                                                                           \
         return is(handle, HANDLE) ? set(of, of_kind, attribute, value, bytes) : NOT_INITIALIZED;) \
    CALL(name##GetAttribute,                                                                       \
         (const struct object *handle, const struct object *of, unsigned attribute, void *value,   \
          size_t bytes),                                                                           \
         return is(handle, HANDLE) ? get(of, of_kind, attribute, value, bytes) : NOT_INITIALIZED;)

static int set(struct object *of, int kind, unsigned attribute, const void *value, size_t bytes)
{
    if (!is(of, kind) || !value || attribute >= ATTRIBUTES_MAX || bytes > 8)
        return INVALID_VALUE;
    of->attributes[attribute] = 0;
    memcpy(&of->attributes[attribute], value, bytes);
    return SUCCESS;
}

static int get(const struct object *of, int kind, unsigned attribute, void *value, size_t bytes)
{
    if (!is(of, kind) || !value || attribute >= ATTRIBUTES_MAX || bytes > 8)
        return INVALID_VALUE;
    memcpy(value, &of->attributes[attribute], bytes);
    return SUCCESS;
}

ATTRIBUTES(cusparseLtMatDesc, MATRIX)
ATTRIBUTES(cusparseLtMatmulDesc, PRODUCT)
ATTRIBUTES(cusparseLtMatmulAlg, CHOICE)

CALL(cusparseLtMatmulDescriptorInit,
     (const struct object *handle, struct object *of, int operation_a, int operation_b,
      const struct object *a, const struct object *b, const struct object *c,
      const struct object *d, int type),
     {
         int status = start(handle, of, PRODUCT);
         (void)operation_a;
         (void)operation_b;
         if (status == SUCCESS && (!is(a, MATRIX) || !is(b, MATRIX) || !is(c, MATRIX) ||
                                   !is(d, MATRIX) || a->is_structured == b->is_structured))
             return INVALID_VALUE;
         if (status == SUCCESS)
             of->type = type;
         return status;
     })

/* One algorithm: a search finds it. */
CALL(cusparseLtMatmulAlgSelectionInit,
     (const struct object *handle, struct object *of, const struct object *product, int choice), {
         int status = start(handle, of, CHOICE);
         (void)choice;
         if (status == SUCCESS)
             of->attributes[CONFIG_ID_MAX] = 1;
         return status != SUCCESS || is(product, PRODUCT) ? status : INVALID_VALUE;
     })
CALL(cusparseLtMatmulPlanInit,
     (const struct object *handle, struct object *of, const struct object *product,
      const struct object *choice),
     {
         int status = start(handle, of, PLAN);
         return status != SUCCESS || (is(product, PRODUCT) && is(choice, CHOICE)) ? status
                                                                                  : INVALID_VALUE;
     })
CALL(cusparseLtMatmulGetWorkspace,
     (const struct object *handle, const struct object *plan, size_t *bytes), {
         static int told;
         if (!is(handle, HANDLE) || !is(plan, PLAN) || !bytes)
             return INVALID_VALUE;
         pretend_math_unknown(bytes, sizeof *bytes, "cusparseLtMatmulGetWorkspace", &told);
         return SUCCESS;
     })

/* Half of the values, and two bits for each that is kept: 9 of 16 parts of 16-bit data, 10 of 16
 * of 8-bit data. The documentation names the compression, PyTorch counts by these parts. */
static size_t compressed_bytes(const struct object *of)
{
    size_t elements = (size_t)of->rows * (size_t)of->columns;
    if (of->type == DATA_R_8I)
        return elements * 10 / 16;
    return elements * (of->type == 0 ? 4 : 2) * 9 / 16;
}

CALL(cusparseLtSpMMACompressedSize2,
     (const struct object *handle, const struct object *of, size_t *compressed, size_t *buffer), {
         static int told;
         if (!is(handle, HANDLE) || !is(of, MATRIX) || !compressed || !buffer)
             return INVALID_VALUE;
         *compressed = compressed_bytes(of);
         pretend_math_unknown(buffer, sizeof *buffer, "cusparseLtSpMMACompressedSize2", &told);
         return SUCCESS;
     })

/* What was pruned has the structure: the device says so by a zero. */
static int check_structure(const struct object *handle, int *valid, CUstream stream)
{
    const struct pretend_math_object order = {.stream = stream};
    if (!is(handle, HANDLE))
        return NOT_INITIALIZED;
    if (!valid)
        return INVALID_VALUE;
    pretend_math_success(&order, valid, 1);
    return SUCCESS;
}

CALL(cusparseLtSpMMAPruneCheck,
     (const struct object *handle, const struct object *product, const void *values, int *valid,
      CUstream stream),
     {
         (void)values;
         return is(product, PRODUCT) ? check_structure(handle, valid, stream) : INVALID_VALUE;
     })
CALL(cusparseLtSpMMAPruneCheck2,
     (const struct object *handle, const struct object *matrix, int is_first, int operation,
      const void *values, int *valid, CUstream stream),
     {
         (void)is_first;
         (void)operation;
         (void)values;
         return is(matrix, MATRIX) ? check_structure(handle, valid, stream) : INVALID_VALUE;
     })

PRETEND_CALL const char *cusparseLtGetErrorName(int status);
PRETEND_CALL const char *cusparseLtGetErrorName(int status)
{
    return status == SUCCESS           ? "CUSPARSE_STATUS_SUCCESS"
           : status == NOT_INITIALIZED ? "CUSPARSE_STATUS_NOT_INITIALIZED"
           : status == INVALID_VALUE   ? "CUSPARSE_STATUS_INVALID_VALUE"
                                       : "CUSPARSE_STATUS_NOT_SUPPORTED";
}

PRETEND_CALL const char *cusparseLtGetErrorString(int status);
PRETEND_CALL const char *cusparseLtGetErrorString(int status)
{
    return status == SUCCESS           ? "success"
           : status == NOT_INITIALIZED ? "initialization error"
           : status == INVALID_VALUE   ? "invalid value"
                                       : "operation not supported";
}
