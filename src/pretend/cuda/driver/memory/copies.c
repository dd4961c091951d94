/* SPDX-License-Identifier: MIT */
/* The calls that copy and set bytes in a row. Those on a stream that is captured become nodes. */
#include "copy.h"

static CUresult enter_context(void)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return pretend_current_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

struct copy {
    CUdeviceptr to, from;
    uint64_t bytes;
};

struct set {
    CUdeviceptr to;
    uint64_t element_bytes, n;
    uint32_t value;
};

static void run_copy(const void *what)
{
    const struct copy *copy = what;
    pretend_copy(copy->to, copy->from, copy->bytes);
}

static void run_set(const void *what)
{
    const struct set *set = what;
    pretend_set(set->to, set->value, set->element_bytes, set->n);
}

static CUresult copy_now(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    CUresult result = enter_context();
    if (result == CUDA_SUCCESS)
        result = pretend_unsafe_in_capture();
    return result == CUDA_SUCCESS ? pretend_copy(to, from, bytes) : result;
}

static CUresult copy_on(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    struct pretend_graph_node *node = NULL;
    CUresult result = enter_context();
    if (result == CUDA_SUCCESS)
        result = pretend_capture_work(stream, PRETEND_NODE_COPY, &node);
    if (result != CUDA_SUCCESS)
        return result;
    if (!node)
        return pretend_copy(to, from, bytes);
    const struct copy copy = {to, from, bytes};
    pretend_node_run(node, run_copy, &copy, sizeof copy);
    return CUDA_SUCCESS;
}

/* Whether an end that must be a device's is one, or the host's memory that the driver knows. */
static int is_known(CUdeviceptr pointer)
{
    if (pretend_enter() != CUDA_SUCCESS)
        return 1; /* which is said first */
    pretend_lock();
    int known = pretend_space_at(pointer) >= 0 || pretend_range_find(pointer);
    pretend_unlock();
    return known;
}

/* A copy at once and on a stream. TO and FROM are the types of its ends, which are ALLOWED. */
#define COPY(name, form, TO, FROM, ALLOWED)                                                        \
    CUresult name##form(TO to, FROM from, size_t bytes);                                           \
    PRETEND_CALL CUresult name##form(TO to, FROM from, size_t bytes)                               \
    {                                                                                              \
        return !bytes || (ALLOWED) ? copy_now((CUdeviceptr)to, (CUdeviceptr)from, bytes)           \
                                   : CUDA_ERROR_INVALID_VALUE;                                     \
    }                                                                                              \
    CUresult name##Async##form(TO to, FROM from, size_t bytes, CUstream stream);                   \
    PRETEND_CALL CUresult name##Async##form(TO to, FROM from, size_t bytes, CUstream stream)       \
    {                                                                                              \
        return !bytes || (ALLOWED) ? copy_on((CUdeviceptr)to, (CUdeviceptr)from, bytes, stream)    \
                                   : CUDA_ERROR_INVALID_VALUE;                                     \
    }
COPY(cuMemcpy, , CUdeviceptr, CUdeviceptr, 1)
COPY(cuMemcpyHtoD, _v2, CUdeviceptr, const void *, is_known(to))
COPY(cuMemcpyDtoH, _v2, void *, CUdeviceptr, is_known(from))
COPY(cuMemcpyDtoD, _v2, CUdeviceptr, CUdeviceptr, is_known(to) && is_known(from))

/* Addresses say which device they are of. */
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes);
PRETEND_CALL CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                   CUcontext from_context, size_t bytes)
{
    return to_context && from_context ? copy_now(to, from, bytes) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream stream);
PRETEND_CALL CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                        CUcontext from_context, size_t bytes, CUstream stream)
{
    return to_context && from_context ? copy_on(to, from, bytes, stream)
                                      : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult set_now(CUdeviceptr to, uint32_t value, uint64_t element_bytes, size_t n)
{
    CUresult result = enter_context();
    if (result == CUDA_SUCCESS)
        result = pretend_unsafe_in_capture();
    return result == CUDA_SUCCESS ? pretend_set(to, value, element_bytes, n) : result;
}

static CUresult set_on(CUdeviceptr to, uint32_t value, uint64_t element_bytes, size_t n,
                       CUstream stream)
{
    struct pretend_graph_node *node = NULL;
    CUresult result = enter_context();
    if (result == CUDA_SUCCESS)
        result = pretend_capture_work(stream, PRETEND_NODE_SET, &node);
    if (result != CUDA_SUCCESS)
        return result;
    if (!node)
        return pretend_set(to, value, element_bytes, n);
    const struct set set = {to, element_bytes, n, value};
    pretend_node_run(node, run_set, &set, sizeof set);
    return CUDA_SUCCESS;
}

/* Rows that lie `pitch` apart. */
static CUresult set_rows(CUdeviceptr to, size_t pitch, uint32_t value, uint64_t element_bytes,
                         size_t width, size_t height)
{
    CUresult result = CUDA_SUCCESS;
    if (!width)
        return CUDA_SUCCESS;
    if (pitch == width * element_bytes && !__builtin_mul_overflow(width, height, &width))
        height = 1;
    for (size_t row = 0; row < height && result == CUDA_SUCCESS; row++)
        result = pretend_set(to + row * pitch, value, element_bytes, width);
    return result;
}

static CUresult set_rows_on(CUdeviceptr to, size_t pitch, uint32_t value, uint64_t element_bytes,
                            size_t width, size_t height, int is_on_stream, CUstream stream)
{
    CUresult result = enter_context();
    if (result == CUDA_SUCCESS && height > 1 && pitch < width * element_bytes)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS || (is_on_stream && pretend_captured(stream, PRETEND_NODE_SET)))
        return result;
    return set_rows(to, pitch, value, element_bytes, width, height);
}

/* A set of elements and of rows of them, each at once and on a stream. */
#define SET(bits, VALUE, size)                                                                     \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, VALUE value, size_t n);                          \
    PRETEND_CALL CUresult cuMemsetD##bits##_v2(CUdeviceptr to, VALUE value, size_t n)              \
    {                                                                                              \
        return set_now(to, value, size, n);                                                        \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, VALUE value, size_t n, CUstream stream);       \
    PRETEND_CALL CUresult cuMemsetD##bits##Async(CUdeviceptr to, VALUE value, size_t n,            \
                                                 CUstream stream)                                  \
    {                                                                                              \
        return set_on(to, value, size, n, stream);                                                 \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, VALUE value, size_t width,       \
                                    size_t height);                                                \
    PRETEND_CALL CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, VALUE value,        \
                                                 size_t width, size_t height)                      \
    {                                                                                              \
        return set_rows_on(to, pitch, value, size, width, height, 0, NULL);                        \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, VALUE value, size_t width,     \
                                      size_t height, CUstream stream);                             \
    PRETEND_CALL CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, VALUE value,      \
                                                   size_t width, size_t height, CUstream stream)   \
    {                                                                                              \
        return set_rows_on(to, pitch, value, size, width, height, 1, stream);                      \
    }
SET(8, unsigned char, 1)
SET(16, unsigned short, 2)
SET(32, unsigned, 4)
