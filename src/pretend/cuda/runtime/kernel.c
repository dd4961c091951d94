/* SPDX-License-Identifier: MIT */
/* Kernels by host function or handle: what is known of them, how many fit on a multiprocessor, and
 * libraries that hand them out. */
#include "driver_calls.h"
#include "runtime.h"

/* Enters, and finds the function; then calls the driver with it. */
#define WITH_FUNCTION(host, call)                                                                  \
    CUfunction function = NULL;                                                                    \
    int code = runtime_enter();                                                                    \
    if (code == cudaSuccess)                                                                       \
        code = runtime_function(host, &function);                                                  \
    return runtime_note(code != cudaSuccess ? code : (call))

/* The driver's number of an attribute and where the runtime has it. */
static const struct {
    int attribute;
    size_t offset;
    int is_size;
} attributes[] = {
#define FIELD(number, name)                                                                        \
    {                                                                                              \
        number, offsetof(struct cudaFuncAttributes, name),                                         \
            sizeof((struct cudaFuncAttributes *)0)->name == sizeof(size_t)                         \
    }
    FIELD(0, maxThreadsPerBlock),
    FIELD(1, sharedSizeBytes),
    FIELD(2, constSizeBytes),
    FIELD(3, localSizeBytes),
    FIELD(4, numRegs),
    FIELD(5, ptxVersion),
    FIELD(6, binaryVersion),
    FIELD(7, cacheModeCA),
    FIELD(8, maxDynamicSharedSizeBytes),
    FIELD(9, preferredShmemCarveout),
    FIELD(10, clusterDimMustBeSet),
    FIELD(11, requiredClusterWidth),
    FIELD(12, requiredClusterHeight),
    FIELD(13, requiredClusterDepth),
    FIELD(14, nonPortableClusterSizeAllowed),
    FIELD(15, clusterSchedulingPolicyPreference),
#undef FIELD
};

static int read_attributes(struct cudaFuncAttributes *out, CUfunction function)
{
    *out = (struct cudaFuncAttributes){0};
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        char *field = (char *)out + attributes[i].offset;
        int value = 0;
        int result = cuFuncGetAttribute(&value, attributes[i].attribute, function);
        if (result != CUDA_SUCCESS && attributes[i].attribute < 10)
            return result;
        if (attributes[i].is_size)
            *(size_t *)(void *)field = (size_t)value;
        else
            *(int *)(void *)field = value;
    }
    return cudaSuccess;
}

EXPORTED(cudaFuncGetAttributes, (struct cudaFuncAttributes * out, const void *host))
{
    WITH_FUNCTION(host, out ? read_attributes(out, function) : cudaErrorInvalidValue);
}

EXPORTED(cudaFuncSetAttribute, (const void *host, int attribute, int value))
{
    WITH_FUNCTION(host, cuFuncSetAttribute(function, attribute, value));
}

EXPORTED(cudaFuncSetCacheConfig, (const void *host, int config))
{
    WITH_FUNCTION(host, cuFuncSetCacheConfig(function, config));
}

/* The width of shared memory's banks has not mattered since capability 5.0. */
EXPORTED(cudaFuncSetSharedMemConfig, (const void *host, int config))
{
    WITH_FUNCTION(host, config >= 0 && config <= 2 ? cudaSuccess : cudaErrorInvalidValue);
}

EXPORTED(cudaFuncGetName, (const char **name, const void *host))
{
    WITH_FUNCTION(host, cuFuncGetName(name, function));
}

EXPORTED(cudaFuncGetParamInfo, (const void *host, size_t index, size_t *offset, size_t *bytes))
{
    WITH_FUNCTION(host, cuFuncGetParamInfo(function, index, offset, bytes));
}

EXPORTED(cudaGetFuncBySymbol, (CUfunction * out, const void *host))
{
    WITH_FUNCTION(host, out ? (*out = function, cudaSuccess) : cudaErrorInvalidValue);
}

EXPORTED(cudaGetKernel, (CUkernel * kernel, const void *host))
{
    int result = runtime_enter();
    if (result == cudaSuccess)
        result = kernel ? runtime_kernel(host, kernel) : cudaErrorInvalidValue;
    if (result == cudaSuccess)
        result = runtime_know(*kernel);
    return runtime_note(result);
}

EXPORTED(__cudaGetKernel, (CUkernel * kernel, const void *host))
{
    return cudaGetKernel(kernel, host);
}

EXPORTED(cudaKernelSetAttributeForDevice, (CUkernel kernel, int attribute, int value, int device))
{
    CUkernel known = NULL;
    int result = runtime_enter();
    if (result == cudaSuccess)
        result = runtime_kernel(kernel, &known);
    if (result == cudaSuccess)
        result = cuKernelSetAttribute(attribute, value, known, device);
    return runtime_note(result);
}

EXPORTED(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
         (int *blocks, const void *host, int threads, size_t shared, unsigned flags))
{
    WITH_FUNCTION(host, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                            blocks, function, threads, shared, flags));
}

EXPORTED(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
         (int *blocks, const void *host, int threads, size_t shared))
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}

EXPORTED(cudaOccupancyAvailableDynamicSMemPerBlock,
         (size_t * bytes, const void *host, int blocks, int threads))
{
    WITH_FUNCTION(host, cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, threads));
}

EXPORTED(cudaLibraryLoadData, (CUlibrary * library, const void *code, void *jit, void **jit_values,
                               unsigned n_jit, void *options, void **values, unsigned n_options))
{
    int result = runtime_start();
    if (result == cudaSuccess)
        result =
            cuLibraryLoadData(library, code, jit, jit_values, n_jit, options, values, n_options);
    return runtime_note(result);
}

EXPORTED(cudaLibraryUnload, (CUlibrary library))
{
    int result = runtime_start();
    return runtime_note(result != cudaSuccess ? result : cuLibraryUnload(library));
}

EXPORTED(cudaLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name))
{
    int result = runtime_start();
    if (result == cudaSuccess)
        result = kernel && name ? cudaSuccess : cudaErrorInvalidValue;
    if (result == cudaSuccess)
        result = cuLibraryGetKernel(kernel, library, name);
    if (result == cudaSuccess)
        result = runtime_know(*kernel);
    return runtime_note(result);
}

EXPORTED(cudaLibraryEnumerateKernels, (CUkernel * kernels, unsigned most, CUlibrary library))
{
    int result = runtime_start();
    if (result == cudaSuccess)
        result = cuLibraryEnumerateKernels(kernels, most, library);
    for (unsigned i = 0; result == cudaSuccess && i < most && kernels[i]; i++)
        result = runtime_know(kernels[i]);
    return runtime_note(result);
}

EXPORTED(cudaLibraryGetGlobal, (void **pointer, size_t *bytes, CUlibrary library, const char *name))
{
    CUdeviceptr found = 0;
    int result = runtime_enter();
    if (result == cudaSuccess)
        result = cuLibraryGetGlobal(&found, bytes, library, name);
    if (result == cudaSuccess && pointer)
        *pointer = (void *)(uintptr_t)found;
    return runtime_note(result);
}
