/* SPDX-License-Identifier: MIT */
/* Copies of rows: two and three dimensions, between peers, and many at once. Arrays of textures are
 * not pretended; a copy that names one is refused. */
#include "copy.h"

/* An end of a copy: where its first byte is, and how far rows and layers lie apart. */
struct rows {
    CUdeviceptr at;
    uint64_t row, layer;
};

static CUresult find_end(CUmemorytype type, const void *host, CUdeviceptr device, CUdeviceptr *at)
{
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        *at = (CUdeviceptr)(uintptr_t)host;
        return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        *at = device;
        return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEMORYTYPE_ARRAY:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Rows that lie close are one. */
static CUresult copy_rows(struct rows to, struct rows from, uint64_t width, uint64_t height,
                          uint64_t depth)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t bytes;
    if (!width || !height || !depth)
        return CUDA_SUCCESS;
    if (height > 1 && (to.row < width || from.row < width))
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(width, height, &bytes) ||
        __builtin_mul_overflow(bytes, depth, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (to.row == width && from.row == width) {
        width *= height;
        height = 1;
    }
    if (height == 1 && to.layer == width && from.layer == width) {
        width *= depth;
        depth = 1;
    }
    for (uint64_t z = 0; z < depth && result == CUDA_SUCCESS; z++)
        for (uint64_t y = 0; y < height && result == CUDA_SUCCESS; y++)
            result = pretend_copy(to.at + z * to.layer + y * to.row,
                                  from.at + z * from.layer + y * from.row, width);
    return result;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy)
{
    struct rows to, from;
    CUresult result = find_end(copy->dstMemoryType, copy->dstHost, copy->dstDevice, &to.at);
    if (result == CUDA_SUCCESS)
        result = find_end(copy->srcMemoryType, copy->srcHost, copy->srcDevice, &from.at);
    if (result != CUDA_SUCCESS)
        return result;
    to.row = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes;
    from.row = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes;
    to.layer = to.row * (copy->dstHeight ? copy->dstHeight : copy->Height);
    from.layer = from.row * (copy->srcHeight ? copy->srcHeight : copy->Height);
    to.at += copy->dstZ * to.layer + copy->dstY * to.row + copy->dstXInBytes;
    from.at += copy->srcZ * from.layer + copy->srcY * from.row + copy->srcXInBytes;
    return copy_rows(to, from, copy->WidthInBytes, copy->Height, copy->Depth);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy)
{
    CUDA_MEMCPY3D wide = {
        .srcXInBytes = copy->srcXInBytes,
        .srcY = copy->srcY,
        .srcMemoryType = copy->srcMemoryType,
        .srcHost = copy->srcHost,
        .srcDevice = copy->srcDevice,
        .srcPitch = copy->srcPitch,
        .dstXInBytes = copy->dstXInBytes,
        .dstY = copy->dstY,
        .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost,
        .dstDevice = copy->dstDevice,
        .dstPitch = copy->dstPitch,
        .WidthInBytes = copy->WidthInBytes,
        .Height = copy->Height,
        .Depth = 1,
    };
    return copy_3d(&wide);
}

static CUresult enter(const void *copy)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (pretend_current_device() < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    return copy ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A copy at once and on a stream, where a graph may do it again. */
#define ROWS(name, form, COPY, done)                                                               \
    CUresult name##form(const COPY *copy);                                                         \
    PRETEND_CALL CUresult name##form(const COPY *copy)                                             \
    {                                                                                              \
        CUresult result = enter(copy);                                                             \
        return result == CUDA_SUCCESS ? done(copy) : result;                                       \
    }                                                                                              \
    static void run_##name(const void *copy)                                                       \
    {                                                                                              \
        done(copy);                                                                                \
    }                                                                                              \
    CUresult name##Async##form(const COPY *copy, CUstream stream);                                 \
    PRETEND_CALL CUresult name##Async##form(const COPY *copy, CUstream stream)                     \
    {                                                                                              \
        struct pretend_graph_node *node = NULL;                                                    \
        CUresult result = enter(copy);                                                             \
        if (result == CUDA_SUCCESS)                                                                \
            result = pretend_capture_work(stream, PRETEND_NODE_COPY, &node);                       \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        if (!node)                                                                                 \
            return done(copy);                                                                     \
        pretend_node_run(node, run_##name, copy, sizeof *copy);                                    \
        return CUDA_SUCCESS;                                                                       \
    }
ROWS(cuMemcpy2D, _v2, CUDA_MEMCPY2D, copy_2d)
ROWS(cuMemcpy3D, _v2, CUDA_MEMCPY3D, copy_3d)
ROWS(cuMemcpy3DPeer, , CUDA_MEMCPY3D_PEER, copy_3d)

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy);
PRETEND_CALL CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
    return cuMemcpy2D_v2(copy);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n,
                               CUmemcpyAttributes *attributes, size_t *which, size_t n_attributes,
                               CUstream stream);
PRETEND_CALL CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                            size_t n, CUmemcpyAttributes *attributes, size_t *which,
                                            size_t n_attributes, CUstream stream)
{
    CUresult result = enter(to);
    if (result != CUDA_SUCCESS)
        return result;
    if (!from || !bytes || !n || !attributes || !which || !n_attributes || n_attributes > n ||
        which[0])
        return CUDA_ERROR_INVALID_VALUE;
    if (pretend_captured(stream, PRETEND_NODE_COPY))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = pretend_copy(to[i], from[i], bytes[i]);
    return result;
}

/* The form of CUDA 12.8, which also says which copy failed. */
CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n,
                            CUmemcpyAttributes *attributes, size_t *which, size_t n_attributes,
                            size_t *failed, CUstream stream);
PRETEND_CALL CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                         size_t n, CUmemcpyAttributes *attributes, size_t *which,
                                         size_t n_attributes, size_t *failed, CUstream stream)
{
    CUresult result =
        cuMemcpyBatchAsync_v2(to, from, bytes, n, attributes, which, n_attributes, stream);
    if (result != CUDA_SUCCESS && failed)
        *failed = SIZE_MAX;
    return result;
}
