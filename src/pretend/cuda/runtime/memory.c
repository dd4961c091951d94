/* SPDX-License-Identifier: MIT */
/* Memory calls with rules of the runtime's own: no bytes are no error, copies name their direction,
 * and a pointer that the driver does not know is host memory. */
#include "driver_calls.h"
#include "runtime.h"

static CUdeviceptr address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

/* An allocation of nothing succeeds and gives NULL. */
#define ALLOCATION(name, parameters, is_nothing, call)                                             \
    EXPORTED(name, parameters)                                                                     \
    {                                                                                              \
        int code = runtime_enter();                                                                \
        if (code == cudaSuccess && !pointer)                                                       \
            code = cudaErrorInvalidValue;                                                          \
        if (code != cudaSuccess)                                                                   \
            return runtime_note(code);                                                             \
        *pointer = NULL;                                                                           \
        if (is_nothing)                                                                            \
            return cudaSuccess;                                                                    \
        return runtime_note(call);                                                                 \
    }
#define IN_DRIVER ((CUdeviceptr *)(void *)pointer)
ALLOCATION(cudaMalloc, (void **pointer, size_t bytes), !bytes, cuMemAlloc_v2(IN_DRIVER, bytes))
ALLOCATION(cudaMallocHost, (void **pointer, size_t bytes), !bytes,
           cuMemHostAlloc(pointer, bytes, 0))
ALLOCATION(cudaHostAlloc, (void **pointer, size_t bytes, unsigned flags), !bytes,
           cuMemHostAlloc(pointer, bytes, flags))
ALLOCATION(cudaMallocManaged, (void **pointer, size_t bytes, unsigned flags), 0,
           cuMemAllocManaged(IN_DRIVER, bytes, flags))

/* Rows start where the widest elements may. */
ALLOCATION(cudaMallocPitch, (void **pointer, size_t *pitch, size_t width, size_t height),
           pitch && (!width || !height),
           pitch ? cuMemAllocPitch_v2(IN_DRIVER, pitch, width, height, 16) : cudaErrorInvalidValue)

EXPORTED(cudaMalloc3D, (struct cudaPitchedPtr * out, struct cudaExtent extent))
{
    void *pointer = NULL;
    size_t pitch = 0;
    if (!out || (extent.depth && extent.height > SIZE_MAX / extent.depth))
        return runtime_note(cudaErrorInvalidValue);
    cudaError_t result =
        cudaMallocPitch(&pointer, &pitch, extent.width, extent.height * extent.depth);
    if (result == cudaSuccess)
        *out = (struct cudaPitchedPtr){pointer, pitch, extent.width, extent.height};
    return result;
}

/* Also makes a context, which is what programs call it with NULL for. */
EXPORTED(cudaFree, (void *pointer))
{
    int result = runtime_enter();
    if (result == cudaSuccess && pointer)
        result = cuMemFree_v2(address(pointer));
    return runtime_note(result);
}

EXPORTED(cudaFreeHost, (void *pointer))
{
    int result = runtime_enter();
    if (result == cudaSuccess && pointer)
        result = cuMemFreeHost(pointer);
    return runtime_note(result);
}

/* Copies. */

static int enter_copy(int kind)
{
    int result = runtime_enter();
    if (result == cudaSuccess && (kind < 0 || kind > cudaMemcpyDefault))
        result = cudaErrorInvalidMemcpyDirection;
    return result;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, int kind)
{
    int result = enter_copy(kind);
    if (result == cudaSuccess && bytes)
        result = cuMemcpy(address(to), address(from), bytes);
    return runtime_note(result);
}

static cudaError_t copy_later(void *to, const void *from, size_t bytes, int kind, CUstream stream)
{
    int result = enter_copy(kind);
    if (result == cudaSuccess && bytes)
        result = cuMemcpyAsync(address(to), address(from), bytes, stream);
    return runtime_note(result);
}

EXPORTED(cudaMemcpy, (void *to, const void *from, size_t bytes, int kind))
{
    return copy(to, from, bytes, kind);
}

EXPORTED(cudaMemcpy_ptds, (void *to, const void *from, size_t bytes, int kind))
{
    return copy(to, from, bytes, kind);
}

EXPORTED(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, CUstream stream))
{
    return copy_later(to, from, bytes, kind, stream);
}

EXPORTED(cudaMemcpyAsync_ptsz,
         (void *to, const void *from, size_t bytes, int kind, CUstream stream))
{
    return copy_later(to, from, bytes, kind, PER_THREAD(stream));
}

/* Addresses are the same for all devices: which two they are of is known without being told. */
static int check_devices(int to, int from)
{
    int count = 0;
    int result = runtime_enter();
    if (result == cudaSuccess)
        result = cuDeviceGetCount(&count);
    if (result == cudaSuccess && (to < 0 || to >= count || from < 0 || from >= count))
        result = cudaErrorInvalidDevice;
    return result;
}

EXPORTED(cudaMemcpyPeer, (void *to, int to_device, const void *from, int from_device, size_t bytes))
{
    int result = check_devices(to_device, from_device);
    return result != cudaSuccess ? runtime_note(result) : copy(to, from, bytes, cudaMemcpyDefault);
}

EXPORTED(cudaMemcpyPeerAsync, (void *to, int to_device, const void *from, int from_device,
                               size_t bytes, CUstream stream))
{
    int result = check_devices(to_device, from_device);
    return result != cudaSuccess ? runtime_note(result)
                                 : copy_later(to, from, bytes, cudaMemcpyDefault, stream);
}

/* A copy of rows; `later` with a stream. */
static cudaError_t copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                             size_t width, size_t height, int kind, int later, CUstream stream)
{
    int result = enter_copy(kind);
    if (result == cudaSuccess && (width > to_pitch || width > from_pitch))
        result = cudaErrorInvalidPitchValue;
    if (result != cudaSuccess || !width || !height)
        return runtime_note(result);
    const CUDA_MEMCPY2D rows = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = address(from),
        .srcPitch = from_pitch,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = address(to),
        .dstPitch = to_pitch,
        .WidthInBytes = width,
        .Height = height,
    };
    return runtime_note(later ? cuMemcpy2DAsync_v2(&rows, stream) : cuMemcpy2DUnaligned_v2(&rows));
}

#define COPY_ROWS(name)                                                                            \
    EXPORTED(name, (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,  \
                    size_t height, int kind))                                                      \
    {                                                                                              \
        return copy_rows(to, to_pitch, from, from_pitch, width, height, kind, 0, NULL);            \
    }
#define COPY_ROWS_LATER(name, how)                                                                 \
    EXPORTED(name, (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,  \
                    size_t height, int kind, CUstream stream))                                     \
    {                                                                                              \
        return copy_rows(to, to_pitch, from, from_pitch, width, height, kind, 1, how(stream));     \
    }
#define AS_IT_IS(stream) stream
COPY_ROWS(cudaMemcpy2D)
COPY_ROWS(cudaMemcpy2D_ptds)
COPY_ROWS_LATER(cudaMemcpy2DAsync, AS_IT_IS)
COPY_ROWS_LATER(cudaMemcpy2DAsync_ptsz, PER_THREAD)

static CUDA_MEMCPY3D box(struct cudaPitchedPtr to, struct cudaPos to_at, struct cudaPitchedPtr from,
                         struct cudaPos from_at, struct cudaExtent extent)
{
    return (CUDA_MEMCPY3D){
        .srcXInBytes = from_at.x,
        .srcY = from_at.y,
        .srcZ = from_at.z,
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = address(from.ptr),
        .srcPitch = from.pitch,
        .srcHeight = from.ysize,
        .dstXInBytes = to_at.x,
        .dstY = to_at.y,
        .dstZ = to_at.z,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = address(to.ptr),
        .dstPitch = to.pitch,
        .dstHeight = to.ysize,
        .WidthInBytes = extent.width,
        .Height = extent.height,
        .Depth = extent.depth,
    };
}

int runtime_box(const struct cudaMemcpy3DParms *copy, CUDA_MEMCPY3D *out)
{
    if (!copy)
        return cudaErrorInvalidValue;
    if (copy->srcArray || copy->dstArray)
        return cudaErrorNotSupported;
    *out = box(copy->dstPtr, copy->dstPos, copy->srcPtr, copy->srcPos, copy->extent);
    return cudaSuccess;
}

static cudaError_t copy_box(const struct cudaMemcpy3DParms *asked, int later, CUstream stream)
{
    CUDA_MEMCPY3D it;
    int result = runtime_enter();
    if (result == cudaSuccess)
        result = runtime_box(asked, &it);
    if (result != cudaSuccess || !it.WidthInBytes || !it.Height || !it.Depth)
        return runtime_note(result);
    return runtime_note(later ? cuMemcpy3DAsync_v2(&it, stream) : cuMemcpy3D_v2(&it));
}

static cudaError_t copy_peer_box(const struct cudaMemcpy3DPeerParms *asked, int later,
                                 CUstream stream)
{
    if (!asked)
        return runtime_note(cudaErrorInvalidValue);
    const struct cudaMemcpy3DParms here = {asked->srcArray, asked->srcPos,    asked->srcPtr,
                                           asked->dstArray, asked->dstPos,    asked->dstPtr,
                                           asked->extent,   cudaMemcpyDefault};
    int result = check_devices(asked->dstDevice, asked->srcDevice);
    return result != cudaSuccess ? runtime_note(result) : copy_box(&here, later, stream);
}

#define COPY_BOX(name, type, function)                                                             \
    EXPORTED(name, (const struct type *asked))                                                     \
    {                                                                                              \
        return function(asked, 0, NULL);                                                           \
    }
#define COPY_BOX_LATER(name, type, function, how)                                                  \
    EXPORTED(name, (const struct type *asked, CUstream stream))                                    \
    {                                                                                              \
        return function(asked, 1, how(stream));                                                    \
    }
COPY_BOX(cudaMemcpy3D, cudaMemcpy3DParms, copy_box)
COPY_BOX(cudaMemcpy3D_ptds, cudaMemcpy3DParms, copy_box)
COPY_BOX(cudaMemcpy3DPeer, cudaMemcpy3DPeerParms, copy_peer_box)
COPY_BOX(cudaMemcpy3DPeer_ptds, cudaMemcpy3DPeerParms, copy_peer_box)
COPY_BOX_LATER(cudaMemcpy3DAsync, cudaMemcpy3DParms, copy_box, AS_IT_IS)
COPY_BOX_LATER(cudaMemcpy3DAsync_ptsz, cudaMemcpy3DParms, copy_box, PER_THREAD)
COPY_BOX_LATER(cudaMemcpy3DPeerAsync, cudaMemcpy3DPeerParms, copy_peer_box, AS_IT_IS)
COPY_BOX_LATER(cudaMemcpy3DPeerAsync_ptsz, cudaMemcpy3DPeerParms, copy_peer_box, PER_THREAD)
