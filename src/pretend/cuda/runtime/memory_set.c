/* SPDX-License-Identifier: MIT */
/* Setting memory, variables of device code, and what a pointer is. */
#include "driver_calls.h"
#include "runtime.h"

static CUdeviceptr address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static int set(void *to, int value, size_t bytes, int later, CUstream stream)
{
    int result = runtime_enter();
    if (result != cudaSuccess || !bytes)
        return result;
    unsigned char byte = (unsigned char)value;
    return later ? cuMemsetD8Async(address(to), byte, bytes, stream)
                 : cuMemsetD8_v2(address(to), byte, bytes);
}

static int set_rows(void *to, size_t pitch, int value, size_t width, size_t height, int later,
                    CUstream stream)
{
    int result = runtime_enter();
    if (result != cudaSuccess || !width || !height)
        return result;
    unsigned char byte = (unsigned char)value;
    return later ? cuMemsetD2D8Async(address(to), pitch, byte, width, height, stream)
                 : cuMemsetD2D8_v2(address(to), pitch, byte, width, height);
}

static int set_box(struct cudaPitchedPtr to, int value, struct cudaExtent extent, int later,
                   CUstream stream)
{
    int result = runtime_enter();
    for (size_t z = 0; result == cudaSuccess && z < extent.depth; z++)
        result = set_rows((char *)to.ptr + z * to.pitch * to.ysize, to.pitch, value, extent.width,
                          extent.height, later, stream);
    return result;
}

#define SET(name, parameters, call)                                                                \
    EXPORTED(name, parameters)                                                                     \
    {                                                                                              \
        return runtime_note(call);                                                                 \
    }
SET(cudaMemset, (void *to, int value, size_t n), set(to, value, n, 0, NULL))
SET(cudaMemset_ptds, (void *to, int value, size_t n), set(to, value, n, 0, NULL))
SET(cudaMemsetAsync, (void *to, int value, size_t n, CUstream stream), set(to, value, n, 1, stream))
SET(cudaMemsetAsync_ptsz, (void *to, int value, size_t n, CUstream stream),
    set(to, value, n, 1, PER_THREAD(stream)))
SET(cudaMemset2D, (void *to, size_t pitch, int value, size_t width, size_t height),
    set_rows(to, pitch, value, width, height, 0, NULL))
SET(cudaMemset2D_ptds, (void *to, size_t pitch, int value, size_t width, size_t height),
    set_rows(to, pitch, value, width, height, 0, NULL))
SET(cudaMemset2DAsync,
    (void *to, size_t pitch, int value, size_t width, size_t height, CUstream stream),
    set_rows(to, pitch, value, width, height, 1, stream))
SET(cudaMemset2DAsync_ptsz,
    (void *to, size_t pitch, int value, size_t width, size_t height, CUstream stream),
    set_rows(to, pitch, value, width, height, 1, PER_THREAD(stream)))
SET(cudaMemset3D, (struct cudaPitchedPtr to, int value, struct cudaExtent extent),
    set_box(to, value, extent, 0, NULL))
SET(cudaMemset3D_ptds, (struct cudaPitchedPtr to, int value, struct cudaExtent extent),
    set_box(to, value, extent, 0, NULL))
SET(cudaMemset3DAsync,
    (struct cudaPitchedPtr to, int value, struct cudaExtent extent, CUstream stream),
    set_box(to, value, extent, 1, stream))
SET(cudaMemset3DAsync_ptsz,
    (struct cudaPitchedPtr to, int value, struct cudaExtent extent, CUstream stream),
    set_box(to, value, extent, 1, PER_THREAD(stream)))

/* Variables of device code, by the variable that stands for them in the program. */

static int find(const void *symbol, size_t bytes, size_t offset, CUdeviceptr *pointer)
{
    size_t size = 0;
    int result = runtime_enter();
    if (result == cudaSuccess)
        result = runtime_symbol(symbol, pointer, &size);
    if (result == cudaSuccess && (offset > size || bytes > size - offset))
        result = cudaErrorInvalidValue;
    *pointer += offset;
    return result;
}

EXPORTED(cudaGetSymbolAddress, (void **out, const void *symbol))
{
    CUdeviceptr pointer = 0;
    int result = out ? find(symbol, 0, 0, &pointer) : cudaErrorInvalidValue;
    if (result == cudaSuccess)
        *out = (void *)(uintptr_t)pointer;
    return runtime_note(result);
}

EXPORTED(cudaGetSymbolSize, (size_t * out, const void *symbol))
{
    CUdeviceptr pointer = 0;
    size_t bytes = 0;
    int result = runtime_enter();
    if (result == cudaSuccess)
        result = out ? runtime_symbol(symbol, &pointer, &bytes) : cudaErrorInvalidValue;
    if (result == cudaSuccess)
        *out = bytes;
    return runtime_note(result);
}

/* Kinds are cudaMemcpyKind: 1 is from the host to a device, 2 the way back, 3 on devices, 4 told by
 * the addresses. */
static int copy_to(const void *symbol, const void *from, size_t bytes, size_t offset, int kind,
                   int later, CUstream stream)
{
    CUdeviceptr to = 0;
    int result = find(symbol, bytes, offset, &to);
    if (result == cudaSuccess && kind != 1 && kind != 3 && kind != cudaMemcpyDefault)
        result = cudaErrorInvalidMemcpyDirection;
    if (result != cudaSuccess || !bytes)
        return result;
    return later ? cuMemcpyAsync(to, address(from), bytes, stream)
                 : cuMemcpy(to, address(from), bytes);
}

static int copy_from(void *to, const void *symbol, size_t bytes, size_t offset, int kind, int later,
                     CUstream stream)
{
    CUdeviceptr from = 0;
    int result = find(symbol, bytes, offset, &from);
    if (result == cudaSuccess && kind != 2 && kind != 3 && kind != cudaMemcpyDefault)
        result = cudaErrorInvalidMemcpyDirection;
    if (result != cudaSuccess || !bytes)
        return result;
    return later ? cuMemcpyAsync(address(to), from, bytes, stream)
                 : cuMemcpy(address(to), from, bytes);
}

#define TO_SYMBOL   const void *symbol, const void *from, size_t n, size_t offset, int kind
#define FROM_SYMBOL void *to, const void *symbol, size_t n, size_t offset, int kind
SET(cudaMemcpyToSymbol, (TO_SYMBOL), copy_to(symbol, from, n, offset, kind, 0, NULL))
SET(cudaMemcpyToSymbol_ptds, (TO_SYMBOL), copy_to(symbol, from, n, offset, kind, 0, NULL))
SET(cudaMemcpyToSymbolAsync, (TO_SYMBOL, CUstream stream),
    copy_to(symbol, from, n, offset, kind, 1, stream))
SET(cudaMemcpyToSymbolAsync_ptsz, (TO_SYMBOL, CUstream stream),
    copy_to(symbol, from, n, offset, kind, 1, PER_THREAD(stream)))
SET(cudaMemcpyFromSymbol, (FROM_SYMBOL), copy_from(to, symbol, n, offset, kind, 0, NULL))
SET(cudaMemcpyFromSymbol_ptds, (FROM_SYMBOL), copy_from(to, symbol, n, offset, kind, 0, NULL))
SET(cudaMemcpyFromSymbolAsync, (FROM_SYMBOL, CUstream stream),
    copy_from(to, symbol, n, offset, kind, 1, stream))
SET(cudaMemcpyFromSymbolAsync_ptsz, (FROM_SYMBOL, CUstream stream),
    copy_from(to, symbol, n, offset, kind, 1, PER_THREAD(stream)))

/* The driver counts kinds of memory from 1, host first; the runtime's are 0 for what CUDA does not
 * know, 1 for host, 2 for device and 3 for managed memory. */
EXPORTED(cudaPointerGetAttributes, (struct cudaPointerAttributes * out, const void *pointer))
{
    unsigned type = 0;
    int device = -2, is_managed = 0;
    void *on_device = NULL, *on_host = NULL;
    int attributes[] = {2, 9, 3, 4, 8};
    void *values[] = {&type, &device, &on_device, &on_host, &is_managed};
    int result = runtime_enter();
    if (result == cudaSuccess && !out)
        result = cudaErrorInvalidValue;
    if (result == cudaSuccess)
        result = cuPointerGetAttributes(5, attributes, values, address(pointer));
    if (result != cudaSuccess)
        return runtime_note(result);
    *out = (struct cudaPointerAttributes){0};
    out->type = is_managed ? 3 : (int)type;
    out->device = type ? device : -2;
    out->devicePointer = type ? on_device : NULL;
    out->hostPointer = type ? on_host : (void *)(uintptr_t)pointer;
    return cudaSuccess;
}
