/* SPDX-License-Identifier: MIT */
/* How many blocks a multiprocessor holds: the least of what its threads, blocks, registers and
 * shared memory allow ("Hardware Multithreading" in the CUDA programming guide). */
#include "module.h"
#include "pretend/cuda/abi/driver_calls.h"

#define WARP                32u
#define BLOCK_MOST          1024u
#define REGISTERS           65536u /* of a multiprocessor */
#define REGISTERS_WARP_UNIT 256u   /* a warp takes registers in these */
#define SHARED_UNIT         128u   /* a block takes shared memory in these */
#define SHARED_KEPT         1024u  /* by the system for each block, from 8.0 on */

static uint64_t up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int pretend_blocks_of(const struct mt_gpu_spec *gpu, const struct pretend_function *function,
                      uint64_t threads, uint64_t dynamic_bytes)
{
    uint64_t warps = up(threads, WARP) / WARP;
    uint64_t registers = (uint64_t)function->attribute[CU_FUNC_ATTRIBUTE_NUM_REGS];
    uint64_t shared = (uint64_t)function->attribute[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
    uint64_t blocks = gpu->blocks_most;
    if (!threads || threads > BLOCK_MOST || dynamic_bytes > gpu->shared_bytes)
        return 0;
    shared = up(shared + dynamic_bytes + (gpu->capability >= 80 ? SHARED_KEPT : 0), SHARED_UNIT);
    blocks = least(blocks, gpu->threads_most / WARP / warps);
    if (registers)
        blocks = least(blocks, REGISTERS / (up(registers * WARP, REGISTERS_WARP_UNIT) * warps));
    if (shared)
        blocks = least(blocks, gpu->shared_bytes / shared);
    return (int)blocks;
}

/* What every question begins with. */
static CUresult ask(const void *answer, const void *handle, const struct mt_gpu_spec **gpu,
                    const struct pretend_function **function)
{
    struct pretend_context *context;
    CUresult result = pretend_context_of(NULL, &context);
    if (result != CUDA_SUCCESS)
        return result;
    *function = pretend_function_of(handle);
    *gpu = pretend_device(context->device)->gpu;
    if (!answer)
        return CUDA_ERROR_INVALID_VALUE;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

PRETEND_CALL CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, CUfunction handle, int threads, size_t dynamic_bytes, unsigned flags)
{
    const struct mt_gpu_spec *gpu;
    const struct pretend_function *function;
    CUresult result = ask(blocks, handle, &gpu, &function);
    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    if (threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *blocks = pretend_blocks_of(gpu, function, (uint64_t)threads, dynamic_bytes);
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                                  int threads, size_t dynamic_bytes)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                dynamic_bytes, 0);
}

PRETEND_CALL CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block,
                                                                CUfunction handle,
                                                                CUoccupancyB2DSize dynamic_of,
                                                                size_t dynamic_bytes, int limit,
                                                                unsigned flags)
{
    const struct mt_gpu_spec *gpu;
    const struct pretend_function *function;
    CUresult result = ask(grid, handle, &gpu, &function);
    uint64_t best = 0;
    int most = limit > 0 && limit < (int)BLOCK_MOST ? limit : (int)BLOCK_MOST;
    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    if (!block)
        return CUDA_ERROR_INVALID_VALUE;
    *grid = *block = 0;
    for (int threads = most; threads > 0; threads -= threads % 32 ? threads % 32 : 32) {
        size_t bytes = dynamic_of ? dynamic_of(threads) : dynamic_bytes;
        int blocks = pretend_blocks_of(gpu, function, (uint64_t)threads, bytes);
        if ((uint64_t)blocks * (uint64_t)threads <= best)
            continue;
        best = (uint64_t)blocks * (uint64_t)threads;
        *block = threads;
        *grid = blocks * (int)gpu->multiprocessors;
    }
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                                       CUoccupancyB2DSize dynamic_of,
                                                       size_t dynamic_bytes, int limit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, dynamic_of,
                                                     dynamic_bytes, limit, 0);
}

PRETEND_CALL CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle,
                                                              int blocks, int threads)
{
    const struct mt_gpu_spec *gpu;
    const struct pretend_function *function;
    CUresult result = ask(bytes, handle, &gpu, &function);
    if (result != CUDA_SUCCESS)
        return result;
    if (blocks <= 0 || threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t each = gpu->shared_bytes / (unsigned)blocks / SHARED_UNIT * SHARED_UNIT;
    uint64_t kept = (uint64_t)function->attribute[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] +
                    (gpu->capability >= 80 ? SHARED_KEPT : 0);
    *bytes = each > kept ? least(each - kept, gpu->shared_block_bytes) : 0;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuOccupancyMaxPotentialClusterSize(int *blocks, CUfunction handle,
                                                         const CUlaunchConfig *launch)
{
    const struct mt_gpu_spec *gpu;
    const struct pretend_function *function;
    CUresult result = ask(blocks, handle, &gpu, &function);
    if (result != CUDA_SUCCESS)
        return result;
    if (!launch)
        return CUDA_ERROR_INVALID_VALUE;
    int is_large = function->attribute[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED];
    *blocks = gpu->capability < 90 ? 1 : is_large ? 16 : 8;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle,
                                                   const CUlaunchConfig *launch)
{
    const struct mt_gpu_spec *gpu;
    const struct pretend_function *function;
    CUresult result = ask(clusters, handle, &gpu, &function);
    uint64_t size = 1;
    if (result != CUDA_SUCCESS)
        return result;
    if (!launch || (launch->numAttrs && !launch->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < launch->numAttrs; i++) {
        const uint64_t *value = launch->attrs[i].value.words;
        if (launch->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            size = (value[0] & UINT32_MAX) * (value[0] >> 32) * (value[1] & UINT32_MAX);
    }
    uint64_t threads = (uint64_t)launch->blockDimX * launch->blockDimY * launch->blockDimZ;
    uint64_t blocks = (uint64_t)pretend_blocks_of(gpu, function, threads, launch->sharedMemBytes);
    *clusters = size ? (int)(blocks * gpu->multiprocessors / size) : 0;
    return CUDA_SUCCESS;
}
