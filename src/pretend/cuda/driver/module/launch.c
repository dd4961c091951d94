/* SPDX-License-Identifier: MIT */
/* Launching kernels: arguments are checked, and no kernel runs. */
#include "module.h"
#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/driver/work.h"

#define GRID_MOST        2147483647u
#define GRID_YZ_MOST     65535u
#define BLOCK_MOST       1024u
#define BLOCK_Z_MOST     64u
#define CLUSTER_MOST     16u
#define CLUSTER_PORTABLE 8u

static CUresult check_shape(const CUlaunchConfig *launch, const struct pretend_function *function)
{
    uint64_t threads = (uint64_t)launch->blockDimX * launch->blockDimY;
    if (!launch->gridDimX || !launch->gridDimY || !launch->gridDimZ || !launch->blockDimZ ||
        !threads || launch->gridDimX > GRID_MOST || launch->gridDimY > GRID_YZ_MOST ||
        launch->gridDimZ > GRID_YZ_MOST || threads > BLOCK_MOST ||
        launch->blockDimZ > BLOCK_Z_MOST || threads * launch->blockDimZ > BLOCK_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    if (launch->sharedMemBytes >
        (unsigned)function->attribute[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES])
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult check_cluster(const CUlaunchConfig *launch, const struct pretend_function *function,
                              const uint64_t *value, const struct mt_gpu_spec *gpu)
{
    unsigned x = (unsigned)value[0], y = (unsigned)(value[0] >> 32), z = (unsigned)value[1];
    uint64_t blocks = (uint64_t)x * y;
    int is_large = function->attribute[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED];
    if (gpu->capability < 90)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!blocks || !z || blocks > CLUSTER_MOST || z > CLUSTER_MOST ||
        blocks * z > (is_large ? CLUSTER_MOST : CLUSTER_PORTABLE))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    return launch->gridDimX % x || launch->gridDimY % y || launch->gridDimZ % z
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

/* All blocks of a cooperative launch must be on the device at once. */
static CUresult check_cooperative(const CUlaunchConfig *launch,
                                  const struct pretend_function *function,
                                  const struct mt_gpu_spec *gpu)
{
    uint64_t threads = (uint64_t)launch->blockDimX * launch->blockDimY * launch->blockDimZ;
    uint64_t blocks = (uint64_t)launch->gridDimX * launch->gridDimY;
    uint64_t most = (uint64_t)pretend_blocks_of(gpu, function, threads, launch->sharedMemBytes) *
                    gpu->multiprocessors;
    return blocks > most || blocks * launch->gridDimZ > most
               ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
               : CUDA_SUCCESS;
}

static CUresult check(const CUlaunchConfig *launch, const struct pretend_function *function,
                      CUdevice device)
{
    const struct mt_gpu_spec *gpu = pretend_device(device)->gpu;
    CUresult result = check_shape(launch, function);
    if (result == CUDA_SUCCESS && function->module->image[device].binary == PRETEND_NO_CODE)
        result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    for (unsigned i = 0; result == CUDA_SUCCESS && i < launch->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &launch->attrs[i];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute->value.is_cooperative)
            result = check_cooperative(launch, function, gpu);
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            result = check_cluster(launch, function, attribute->value.words, gpu);
    }
    return result;
}

static CUresult put_in_graph(const CUlaunchConfig *launch, const struct pretend_function *function,
                             struct pretend_stream *stream)
{
    struct pretend_graph_node *node = pretend_capture_node(stream, CU_GRAPH_NODE_TYPE_KERNEL);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->params.kernel = (CUDA_KERNEL_NODE_PARAMS){
        .func = (void *)(uintptr_t)function,
        .gridDimX = launch->gridDimX,
        .gridDimY = launch->gridDimY,
        .gridDimZ = launch->gridDimZ,
        .blockDimX = launch->blockDimX,
        .blockDimY = launch->blockDimY,
        .blockDimZ = launch->blockDimZ,
        .sharedMemBytes = launch->sharedMemBytes,
    };
    return CUDA_SUCCESS;
}

static CUresult launch_it(const CUlaunchConfig *launch, CUfunction handle)
{
    const struct pretend_function *function = pretend_function_of(handle);
    struct pretend_stream *stream;
    struct pretend_context *context = NULL;
    if (!launch || (launch->numAttrs && !launch->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    CUresult result = pretend_stream_for_work(launch->hStream, &stream);
    if (result == CUDA_SUCCESS && !function)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = check(launch, function, stream->context->device);
    if (result == CUDA_SUCCESS)
        context = stream->context;
    if (result == CUDA_SUCCESS && stream->capture)
        result = put_in_graph(launch, function, stream);
    pretend_unlock();
    return result == CUDA_SUCCESS ? pretend_context_load(context, function) : result;
}

PRETEND_CALL CUresult cuLaunchKernelEx(const CUlaunchConfig *launch, CUfunction function,
                                       void **arguments, void **extra)
{
    (void)arguments, (void)extra;
    return launch_it(launch, function);
}

PRETEND_CALL CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_bytes, CUstream stream,
                                     void **arguments, void **extra)
{
    CUlaunchConfig launch = {grid_x,  grid_y,       grid_z, block_x, block_y,
                             block_z, shared_bytes, stream, NULL,    0};
    (void)arguments, (void)extra;
    return launch_it(&launch, function);
}

PRETEND_CALL CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x,
                                                unsigned grid_y, unsigned grid_z, unsigned block_x,
                                                unsigned block_y, unsigned block_z,
                                                unsigned shared_bytes, CUstream stream,
                                                void **arguments)
{
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                     .value = {.is_cooperative = 1}};
    CUlaunchConfig launch = {grid_x,  grid_y,       grid_z, block_x,      block_y,
                             block_z, shared_bytes, stream, &cooperative, 1};
    (void)arguments;
    return launch_it(&launch, function);
}
