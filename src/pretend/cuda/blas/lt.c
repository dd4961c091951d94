/* SPDX-License-Identifier: MIT */
/* The pretended cuBLASLt: one algorithm that needs no workspace answers every question, so that the
 * answer is the same each time; multiplying takes a place in the stream. */
#include "lt.h"

#include <stdlib.h>
#include <string.h>

#include "rehearse/account.h"

#define ALGORITHM 1 /* the one's number */

static const struct lt_attribute algorithm_attributes[] = {
#define A(number, field)                                                                           \
    {                                                                                              \
        number, (uint16_t)offsetof(struct lt_algorithm, field),                                    \
            (uint16_t)sizeof(((struct lt_algorithm *)0)->field)                                    \
    }
    A(0, id),     A(1, tile),   A(2, splits),      A(3, reduction),    A(4, swizzle),
    A(5, option), A(6, stages), A(7, inner_shape), A(8, cluster_shape)};

/* What an algorithm can do (cublasLtMatmulAlgoCapAttributes_t). */
struct capability {
    int number;
    uint32_t bytes;
    uint64_t value;
};
static const struct capability capabilities[] = {
    {.number = 0, .bytes = 4, .value = 1},
    {.number = 1, .bytes = 4, .value = 7},
    {.number = 2, .bytes = 4, .value = 1},
    {.number = 3, .bytes = 4, .value = 1},
    {.number = 4, .bytes = 4, .value = 1},
    {.number = 5, .bytes = 4},
    {.number = 6, .bytes = 4},
    {.number = 7, .bytes = 4},
    {.number = 10, .bytes = 4},
    {.number = 11, .bytes = 4, .value = 0x1f},
    {.number = 12, .bytes = 4, .value = 0xffffffff},
    {.number = 13, .bytes = 4},
    {.number = 14, .bytes = 4},
    {.number = 15, .bytes = 8, .value = 2},
    {.number = 16, .bytes = 4, .value = 16},
    {.number = 17, .bytes = 4, .value = 16},
    {.number = 18, .bytes = 4, .value = 16},
    {.number = 19, .bytes = 4, .value = 16},
    {.number = 20, .bytes = 4},
    {.number = 21, .bytes = 4},
    {.number = 22, .bytes = 4},
    {.number = 23, .bytes = 4},
};

static size_t cache_capacity = 8192;

int cublasLtCreate(struct lt_handle **handle);
int cublasLtDestroy(struct lt_handle *handle);
size_t cublasLtGetVersion(void);
size_t cublasLtGetCudartVersion(void);
int cublasLtGetProperty(int property, int *value);
int cublasLtHeuristicsCacheGetCapacity(size_t *capacity);
int cublasLtHeuristicsCacheSetCapacity(size_t capacity);

PRETEND_CALL int cublasLtCreate(struct lt_handle **handle)
{
    struct lt_handle *made;
    void *zeros;
    CUdevice device;
    if (!handle)
        return BLAS_INVALID_VALUE;
    int status = blas_make(sizeof *made, &zeros, &device);
    if (status != BLAS_SUCCESS)
        return status;
    made = zeros;
    made->magic = LT_MAGIC;
    made->device = device;
    *handle = made;
    return BLAS_SUCCESS;
}

PRETEND_CALL int cublasLtDestroy(struct lt_handle *handle)
{
    if (!lt_is(handle, LT_MAGIC))
        return BLAS_NOT_INITIALIZED;
    handle->magic = 0;
    free(handle);
    return BLAS_SUCCESS;
}

PRETEND_CALL size_t cublasLtGetVersion(void)
{
    return BLAS_VERSION;
}

PRETEND_CALL size_t cublasLtGetCudartVersion(void)
{
    return BLAS_CUDART;
}

PRETEND_CALL int cublasLtGetProperty(int property, int *value)
{
    return blas_property(property, value);
}

PRETEND_CALL int cublasLtHeuristicsCacheGetCapacity(size_t *capacity)
{
    if (!capacity)
        return BLAS_INVALID_VALUE;
    *capacity = cache_capacity;
    return BLAS_SUCCESS;
}

PRETEND_CALL int cublasLtHeuristicsCacheSetCapacity(size_t capacity)
{
    cache_capacity = capacity;
    return BLAS_SUCCESS;
}

/* Nothing is logged. */
#define LOGGER(name, type)                                                                         \
    int name(type unused);                                                                         \
    PRETEND_CALL int name(type unused)                                                             \
    {                                                                                              \
        (void)unused;                                                                              \
        return BLAS_SUCCESS;                                                                       \
    }
LOGGER(cublasLtLoggerSetCallback, void *)
LOGGER(cublasLtLoggerSetFile, void *)
LOGGER(cublasLtLoggerOpenFile, const char *)
LOGGER(cublasLtLoggerSetLevel, int)
LOGGER(cublasLtLoggerSetMask, int)
LOGGER(cublasLtLoggerForceDisable, int)

static struct lt_algorithm the_algorithm(void)
{
    return (struct lt_algorithm){.magic = LT_ALGORITHM_MAGIC, .id = ALGORITHM, .splits = 1};
}

/* A multiplication that may be asked for: all that describes it is there. */
static int is_described(const struct lt_matmul *matmul, const struct lt_layout *const layout[4])
{
    if (!lt_is(matmul, LT_MATMUL_MAGIC))
        return 0;
    for (int i = 0; i < 4; i++)
        if (!lt_is(layout[i], LT_LAYOUT_MAGIC))
            return 0;
    return 1;
}

/* The least capability that has tensors of a type (cudaDataType): floats of 8 bits from 8.9 on, of
 * 4 and 6 bits from 10.0 on. */
static uint32_t capability_of_type(uint32_t type)
{
    enum { R_8F_E4M3 = 28, R_8F_E5M2 = 29, R_6F_E2M3 = 31, R_6F_E3M2 = 32, R_4F_E2M1 = 33 };
    if (type == R_8F_E4M3 || type == R_8F_E5M2)
        return 89;
    return type == R_6F_E2M3 || type == R_6F_E3M2 || type == R_4F_E2M1 ? 100 : 0;
}

static int is_supported(const struct lt_handle *handle, const struct lt_layout *const layout[4])
{
    const struct mt_gpu_spec *gpu = pretend_cuda_gpu(handle->device);
    for (int i = 0; i < 4; i++)
        if (gpu && gpu->capability < capability_of_type(layout[i]->type))
            return 0;
    return 1;
}

int cublasLtMatmulAlgoGetHeuristic(const struct lt_handle *handle, const struct lt_matmul *matmul,
                                   const struct lt_layout *a, const struct lt_layout *b,
                                   const struct lt_layout *c, const struct lt_layout *d,
                                   const struct lt_preference *preference, int n_wanted,
                                   struct lt_heuristic *result, int *n_found);
PRETEND_CALL int cublasLtMatmulAlgoGetHeuristic(
    const struct lt_handle *handle, const struct lt_matmul *matmul, const struct lt_layout *a,
    const struct lt_layout *b, const struct lt_layout *c, const struct lt_layout *d,
    const struct lt_preference *preference, int n_wanted, struct lt_heuristic *result, int *n_found)
{
    const struct lt_layout *const layout[] = {a, b, c, d};
    if (!lt_is_handle(handle))
        return BLAS_NOT_INITIALIZED;
    if (n_wanted <= 0 || !result || !n_found || !is_described(matmul, layout) ||
        !lt_is(preference, LT_PREFER_MAGIC))
        return BLAS_INVALID_VALUE;
    *n_found = 0;
    if (!is_supported(handle, layout))
        return BLAS_NOT_SUPPORTED;
    memset(result, 0, sizeof *result);
    result->algorithm = the_algorithm();
    result->status = BLAS_SUCCESS;
    result->waves = 1.0f;
    *n_found = 1;
    return BLAS_SUCCESS;
}

int cublasLtMatmulAlgoGetIds(const struct lt_handle *handle, int compute, int scale, int a, int b,
                             int c, int d, int n_wanted, int *ids, int *n_found);
PRETEND_CALL int cublasLtMatmulAlgoGetIds(const struct lt_handle *handle, int compute, int scale,
                                          int a, int b, int c, int d, int n_wanted, int *ids,
                                          int *n_found)
{
    (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
    if (!lt_is_handle(handle))
        return BLAS_NOT_INITIALIZED;
    if (n_wanted <= 0 || !ids || !n_found)
        return BLAS_INVALID_VALUE;
    ids[0] = ALGORITHM;
    *n_found = 1;
    return BLAS_SUCCESS;
}

int cublasLtMatmulAlgoInit(const struct lt_handle *handle, int compute, int scale, int a, int b,
                           int c, int d, int id, struct lt_algorithm *algorithm);
PRETEND_CALL int cublasLtMatmulAlgoInit(const struct lt_handle *handle, int compute, int scale,
                                        int a, int b, int c, int d, int id,
                                        struct lt_algorithm *algorithm)
{
    (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
    if (!lt_is_handle(handle))
        return BLAS_NOT_INITIALIZED;
    if (!algorithm || id < 0)
        return BLAS_INVALID_VALUE;
    *algorithm = the_algorithm();
    algorithm->id = id;
    return BLAS_SUCCESS;
}

int cublasLtMatmulAlgoCheck(const struct lt_handle *handle, const struct lt_matmul *matmul,
                            const struct lt_layout *a, const struct lt_layout *b,
                            const struct lt_layout *c, const struct lt_layout *d,
                            const struct lt_algorithm *algorithm, struct lt_heuristic *result);
PRETEND_CALL int cublasLtMatmulAlgoCheck(const struct lt_handle *handle,
                                         const struct lt_matmul *matmul, const struct lt_layout *a,
                                         const struct lt_layout *b, const struct lt_layout *c,
                                         const struct lt_layout *d,
                                         const struct lt_algorithm *algorithm,
                                         struct lt_heuristic *result)
{
    const struct lt_layout *const layout[] = {a, b, c, d};
    struct lt_algorithm checked;
    if (!lt_is_handle(handle))
        return BLAS_NOT_INITIALIZED;
    if (!lt_is(algorithm, LT_ALGORITHM_MAGIC) || !result || !is_described(matmul, layout))
        return BLAS_INVALID_VALUE;
    if (!is_supported(handle, layout))
        return BLAS_NOT_SUPPORTED;
    checked = *algorithm; /* It may stand in `result`. */
    memset(result, 0, sizeof *result);
    result->algorithm = checked;
    result->status = BLAS_SUCCESS;
    result->waves = 1.0f;
    return BLAS_SUCCESS;
}

int cublasLtMatmulAlgoConfigSetAttribute(struct lt_algorithm *algorithm, int number,
                                         const void *value, size_t bytes);
PRETEND_CALL int cublasLtMatmulAlgoConfigSetAttribute(struct lt_algorithm *algorithm, int number,
                                                      const void *value, size_t bytes)
{
    if (!lt_is(algorithm, LT_ALGORITHM_MAGIC) || number == 0) /* the number is not to be written */
        return BLAS_INVALID_VALUE;
    return lt_set(algorithm, algorithm_attributes,
                  sizeof algorithm_attributes / sizeof *algorithm_attributes, number, value, bytes);
}

int cublasLtMatmulAlgoConfigGetAttribute(const struct lt_algorithm *algorithm, int number,
                                         void *value, size_t bytes, size_t *written);
PRETEND_CALL int cublasLtMatmulAlgoConfigGetAttribute(const struct lt_algorithm *algorithm,
                                                      int number, void *value, size_t bytes,
                                                      size_t *written)
{
    if (!lt_is(algorithm, LT_ALGORITHM_MAGIC))
        return BLAS_INVALID_VALUE;
    return lt_get(algorithm, algorithm_attributes,
                  sizeof algorithm_attributes / sizeof *algorithm_attributes, number, value, bytes,
                  written);
}

int cublasLtMatmulAlgoCapGetAttribute(const struct lt_algorithm *algorithm, int number, void *value,
                                      size_t bytes, size_t *written);
PRETEND_CALL int cublasLtMatmulAlgoCapGetAttribute(const struct lt_algorithm *algorithm, int number,
                                                   void *value, size_t bytes, size_t *written)
{
    const struct capability *found = NULL;
    for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++)
        if (capabilities[i].number == number)
            found = &capabilities[i];
    if (!lt_is(algorithm, LT_ALGORITHM_MAGIC) || !found || (!bytes && !written) ||
        (bytes && (!value || bytes < found->bytes)))
        return BLAS_INVALID_VALUE;
    if (bytes)
        memcpy(value, &found->value, found->bytes); /* the low bytes come first */
    if (written)
        *written = found->bytes;
    return BLAS_SUCCESS;
}

int cublasLtMatmul(const struct lt_handle *handle, const struct lt_matmul *matmul,
                   const void *alpha, const void *a, const struct lt_layout *a_layout,
                   const void *b, const struct lt_layout *b_layout, const void *beta, const void *c,
                   const struct lt_layout *c_layout, void *d, const struct lt_layout *d_layout,
                   const struct lt_algorithm *algorithm, void *workspace, size_t workspace_bytes,
                   CUstream stream);
PRETEND_CALL int cublasLtMatmul(const struct lt_handle *handle, const struct lt_matmul *matmul,
                                const void *alpha, const void *a, const struct lt_layout *a_layout,
                                const void *b, const struct lt_layout *b_layout, const void *beta,
                                const void *c, const struct lt_layout *c_layout, void *d,
                                const struct lt_layout *d_layout,
                                const struct lt_algorithm *algorithm, void *workspace,
                                size_t workspace_bytes, CUstream stream)
{
    const struct lt_layout *const layout[] = {a_layout, b_layout, c_layout, d_layout};
    (void)alpha, (void)a, (void)b, (void)beta, (void)c, (void)d, (void)workspace;
    (void)workspace_bytes;
    if (!lt_is_handle(handle))
        return BLAS_NOT_INITIALIZED;
    if (!is_described(matmul, layout) || (algorithm && !lt_is(algorithm, LT_ALGORITHM_MAGIC)))
        return BLAS_INVALID_VALUE;
    if (!is_supported(handle, layout))
        return BLAS_NOT_SUPPORTED;
    return pretend_cuda_work(stream) == CUDA_SUCCESS ? BLAS_SUCCESS : BLAS_EXECUTION_FAILED;
}

int cublasLtMatrixTransform(const struct lt_handle *handle, const struct lt_transform *transform,
                            const void *alpha, const void *a, const struct lt_layout *a_layout,
                            const void *beta, const void *b, const struct lt_layout *b_layout,
                            void *c, const struct lt_layout *c_layout, CUstream stream);
PRETEND_CALL int cublasLtMatrixTransform(const struct lt_handle *handle,
                                         const struct lt_transform *transform, const void *alpha,
                                         const void *a, const struct lt_layout *a_layout,
                                         const void *beta, const void *b,
                                         const struct lt_layout *b_layout, void *c,
                                         const struct lt_layout *c_layout, CUstream stream)
{
    (void)alpha, (void)a, (void)beta, (void)b, (void)b_layout, (void)c;
    if (!lt_is_handle(handle))
        return BLAS_NOT_INITIALIZED;
    if (!lt_is(transform, LT_TRANSFORM_MAGIC) || !lt_is(a_layout, LT_LAYOUT_MAGIC) ||
        !lt_is(c_layout, LT_LAYOUT_MAGIC))
        return BLAS_INVALID_VALUE;
    return pretend_cuda_work(stream) == CUDA_SUCCESS ? BLAS_SUCCESS : BLAS_EXECUTION_FAILED;
}
