/* SPDX-License-Identifier: MIT */
/* Launching kernels. Compiled code pushes the configuration of `kernel<<<…>>>(…)`, and the stub
 * that it then calls pops it. */
#include "driver_calls.h"
#include "runtime.h"

#define PUSHED_MOST 32u

struct configuration {
    dim3 grid, block;
    size_t shared;
    CUstream stream;
};

static __thread struct {
    struct configuration pushed[PUSHED_MOST];
    unsigned n;
} thread;

PRETEND_CALL unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                  CUstream stream);
PRETEND_CALL unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                  CUstream stream)
{
    if (thread.n == PUSHED_MOST)
        return (unsigned)runtime_note(cudaErrorMissingConfiguration);
    thread.pushed[thread.n++] = (struct configuration){grid, block, shared, stream};
    return cudaSuccess;
}

EXPORTED(__cudaPopCallConfiguration, (dim3 * grid, dim3 *block, size_t *shared, CUstream *stream))
{
    if (!thread.n)
        return runtime_note(cudaErrorMissingConfiguration);
    const struct configuration *top = &thread.pushed[--thread.n];
    *grid = top->grid;
    *block = top->block;
    *shared = top->shared;
    *stream = top->stream;
    return cudaSuccess;
}

/* The limits are the same for all devices from capability 3.0 on (CUDA C++ programming guide,
 * compute capabilities). What is outside is called a configuration here, and a value by the driver.
 */
static int check(dim3 grid, dim3 block)
{
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z)
        return cudaErrorInvalidConfiguration;
    if (grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (block.x > 1024 || block.y > 1024 || block.z > 64 || block.x * block.y * block.z > 1024)
        return cudaErrorInvalidConfiguration;
    return cudaSuccess;
}

/* Everything up to the launch; `host` may be a kernel's handle. */
static int prepare(const void *host, dim3 grid, dim3 block, size_t shared, CUfunction *function)
{
    int result = runtime_enter();
    if (result == cudaSuccess)
        result = runtime_function(host, function);
    if (result == cudaSuccess)
        result = check(grid, block);
    return result == cudaSuccess && shared > UINT32_MAX ? cudaErrorInvalidValue : result;
}

static cudaError_t launch(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared,
                          CUstream stream)
{
    CUfunction function = NULL;
    int result = prepare(host, grid, block, shared, &function);
    if (result == cudaSuccess)
        result = cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                (unsigned)shared, stream, arguments, NULL);
    return runtime_note(result);
}

static cudaError_t launch_cooperative(const void *host, dim3 grid, dim3 block, void **arguments,
                                      size_t shared, CUstream stream)
{
    CUfunction function = NULL;
    int result = prepare(host, grid, block, shared, &function);
    if (result == cudaSuccess)
        result = cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y,
                                           block.z, (unsigned)shared, stream, arguments);
    return runtime_note(result);
}

/* The driver's words for a launch with attributes, which both interfaces lay out alike. */
static CUlaunchConfig in_driver(const cudaLaunchConfig_t *config, CUstream stream)
{
    return (CUlaunchConfig){config->gridDim.x,
                            config->gridDim.y,
                            config->gridDim.z,
                            config->blockDim.x,
                            config->blockDim.y,
                            config->blockDim.z,
                            (unsigned)config->dynamicSmemBytes,
                            stream,
                            config->attrs,
                            config->numAttrs};
}

static cudaError_t launch_with(const cudaLaunchConfig_t *config, const void *host, void **arguments,
                               int per_thread)
{
    CUfunction function = NULL;
    if (!config)
        return runtime_note(cudaErrorInvalidConfiguration);
    CUstream stream = per_thread ? PER_THREAD(config->stream) : config->stream;
    CUlaunchConfig asked = in_driver(config, stream);
    int result =
        prepare(host, config->gridDim, config->blockDim, config->dynamicSmemBytes, &function);
    if (result == cudaSuccess)
        result = cuLaunchKernelEx(&asked, function, arguments, NULL);
    return runtime_note(result);
}

#define LAUNCH(name, function, how)                                                                \
    EXPORTED(name, (const void *host, dim3 grid, dim3 block, void **arguments, size_t shared,      \
                    CUstream stream))                                                              \
    {                                                                                              \
        return function(host, grid, block, arguments, shared, how(stream));                        \
    }
#define AS_IT_IS(stream) stream
LAUNCH(cudaLaunchKernel, launch, AS_IT_IS)
LAUNCH(cudaLaunchKernel_ptsz, launch, PER_THREAD)
LAUNCH(cudaLaunchCooperativeKernel, launch_cooperative, AS_IT_IS)
LAUNCH(cudaLaunchCooperativeKernel_ptsz, launch_cooperative, PER_THREAD)
LAUNCH(__cudaLaunchKernel, launch, AS_IT_IS)
LAUNCH(__cudaLaunchKernel_ptsz, launch, PER_THREAD)

EXPORTED(cudaLaunchKernelExC,
         (const cudaLaunchConfig_t *config, const void *host, void **arguments))
{
    return launch_with(config, host, arguments, 0);
}

EXPORTED(cudaLaunchKernelExC_ptsz,
         (const cudaLaunchConfig_t *config, const void *host, void **arguments))
{
    return launch_with(config, host, arguments, 1);
}

typedef int cluster_query(int *value, CUfunction function, const CUlaunchConfig *launch);

static cudaError_t ask_of_clusters(cluster_query *ask, int *value, const void *host,
                                   const cudaLaunchConfig_t *config)
{
    CUfunction function = NULL;
    int result = runtime_enter();
    if (result == cudaSuccess)
        result = value && config ? runtime_function(host, &function) : cudaErrorInvalidValue;
    if (result != cudaSuccess)
        return runtime_note(result);
    CUlaunchConfig asked = in_driver(config, config->stream);
    return runtime_note(ask(value, function, &asked));
}

EXPORTED(cudaOccupancyMaxPotentialClusterSize,
         (int *size, const void *host, const cudaLaunchConfig_t *config))
{
    return ask_of_clusters(cuOccupancyMaxPotentialClusterSize, size, host, config);
}

EXPORTED(cudaOccupancyMaxActiveClusters,
         (int *clusters, const void *host, const cudaLaunchConfig_t *config))
{
    return ask_of_clusters(cuOccupancyMaxActiveClusters, clusters, host, config);
}
