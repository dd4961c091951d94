/* SPDX-License-Identifier: MIT */
/* What a program asks of a context, and sets. */
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/driver/world.h"

#define LIMITS 8

/* Limits in the order of CUlimit, as contexts start with them: stack of a thread, buffer of
 * printf(), heap of malloc(), depth and count of launches by kernels, fetches of the L2 cache, its
 * persisting part, and shared memory that is carved out. */
static const size_t limits_at_start[LIMITS] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0};

/* What every question about a context begins with. */
static CUresult ask(CUcontext handle, const void *answer, struct pretend_context **context)
{
    CUresult result = pretend_context_of(handle, context);
    return result == CUDA_SUCCESS && !answer ? CUDA_ERROR_INVALID_VALUE : result;
}

PRETEND_CALL CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
    struct pretend_context *context;
    CUresult result = ask(handle, device, &context);
    if (result == CUDA_SUCCESS)
        *device = context->device;
    return result;
}

PRETEND_CALL CUresult cuCtxGetDevice(CUdevice *device)
{
    return cuCtxGetDevice_v2(device, NULL);
}

PRETEND_CALL CUresult cuCtxGetFlags(unsigned *flags)
{
    struct pretend_context *context;
    CUresult result = ask(NULL, flags, &context);
    if (result == CUDA_SUCCESS)
        *flags = context->flags;
    return result;
}

PRETEND_CALL CUresult cuCtxSetFlags(unsigned flags)
{
    struct pretend_context *context;
    CUresult result = pretend_context_of(NULL, &context);
    if (result == CUDA_SUCCESS)
        context->flags = flags;
    return result;
}

PRETEND_CALL CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    struct pretend_context *context;
    CUresult result = ask(handle, id, &context);
    if (result == CUDA_SUCCESS)
        *id = context->id;
    return result;
}

PRETEND_CALL CUresult cuCtxGetApiVersion(CUcontext handle, unsigned *version)
{
    struct pretend_context *context;
    CUresult result = ask(handle, version, &context);
    if (result == CUDA_SUCCESS)
        *version = context->version;
    return result;
}

PRETEND_CALL CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    struct pretend_context *context;
    CUresult result = pretend_context_of(handle, &context);
    if (result == CUDA_SUCCESS)
        result = pretend_forbidden_in_capture(context);
    if (result == CUDA_SUCCESS)
        pretend_pools_settle();
    return result;
}

PRETEND_CALL CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}

PRETEND_CALL CUresult cuCtxSetLimit(int limit, size_t value)
{
    struct pretend_context *context;
    CUresult result = pretend_context_of(NULL, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (limit < 0 || limit >= LIMITS)
        return CUDA_ERROR_INVALID_VALUE;
    context->limits[limit] = value;
    context->limits_set |= 1 << limit;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuCtxGetLimit(size_t *value, int limit)
{
    struct pretend_context *context;
    CUresult result = pretend_context_of(NULL, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!value || limit < 0 || limit >= LIMITS)
        return CUDA_ERROR_INVALID_VALUE;
    *value = context->limits_set & 1 << limit ? context->limits[limit] : limits_at_start[limit];
    return CUDA_SUCCESS;
}

static CUresult get_config(int *value, size_t offset)
{
    struct pretend_context *context;
    CUresult result = ask(NULL, value, &context);
    if (result == CUDA_SUCCESS)
        memcpy(value, (const char *)context + offset, sizeof *value);
    return result;
}

static CUresult set_config(int value, int most, size_t offset)
{
    struct pretend_context *context;
    CUresult result = pretend_context_of(NULL, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (value < 0 || value > most)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy((char *)context + offset, &value, sizeof value);
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuCtxGetCacheConfig(int *config)
{
    return get_config(config, offsetof(struct pretend_context, cache_config));
}

PRETEND_CALL CUresult cuCtxSetCacheConfig(int config)
{
    return set_config(config, 3, offsetof(struct pretend_context, cache_config));
}

PRETEND_CALL CUresult cuCtxGetSharedMemConfig(int *config)
{
    return get_config(config, offsetof(struct pretend_context, shared_config));
}

PRETEND_CALL CUresult cuCtxSetSharedMemConfig(int config)
{
    return set_config(config, 2, offsetof(struct pretend_context, shared_config));
}

PRETEND_CALL CUresult cuCtxGetStreamPriorityRange(int *lowest, int *highest)
{
    struct pretend_context *context;
    CUresult result = pretend_context_of(NULL, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (lowest)
        *lowest = PRETEND_PRIORITY_LOWEST;
    if (highest)
        *highest = PRETEND_PRIORITY_HIGHEST;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuCtxResetPersistingL2Cache(void)
{
    struct pretend_context *context;
    return pretend_context_of(NULL, &context);
}

PRETEND_CALL CUresult cuCtxGetExecAffinity(void *affinity, int type)
{
    struct pretend_context *context;
    CUresult result = pretend_context_of(NULL, &context);
    (void)affinity, (void)type;
    return result == CUDA_SUCCESS ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : result;
}

/* Access of one context to another's memory. */

PRETEND_CALL CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    struct pretend_context *context, *other = (void *)peer;
    CUresult result = pretend_context_of(NULL, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!pretend_is(PRETEND_A_CONTEXT, other) || other == context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!pretend_can_access_peer(context->device, other->device))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    uint64_t bit = UINT64_C(1) << other->device;
    uint64_t before = __atomic_fetch_or(&context->peers, bit, __ATOMIC_RELAXED);
    return before & bit ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    struct pretend_context *context, *other = (void *)peer;
    CUresult result = pretend_context_of(NULL, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pretend_is(PRETEND_A_CONTEXT, other))
        return CUDA_ERROR_INVALID_CONTEXT;
    uint64_t bit = UINT64_C(1) << other->device;
    uint64_t before = __atomic_fetch_and(&context->peers, ~bit, __ATOMIC_RELAXED);
    return before & bit ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
