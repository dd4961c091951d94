/* SPDX-License-Identifier: MIT */
/* Contexts: a device's primary one, those that a program makes, and the stack of each thread. */
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/driver/memory/linear.h"
#include "pretend/cuda/driver/memory/memory.h"
#include "pretend/cuda/driver/world.h"

#define STACK_MOST 64
#define FLAGS_ALL                                                                                  \
    0xffu /* scheduling, mapped host memory, resize, coredumps, synchronous copies                 \
           */
#define FLAGS_SCHEDULE 0x07u

static __thread struct pretend_context *stack[STACK_MOST];
static __thread int depth;
/* Held while a context is made or goes: taken before the world's lock, never after. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

void pretend_context_fork(int is_before)
{
    if (is_before)
        pthread_mutex_lock(&making);
    else
        pthread_mutex_unlock(&making);
}

void pretend_context_forked(void)
{
    pthread_mutex_init(&making, NULL);
}

struct pretend_context *pretend_current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

CUdevice pretend_current_device(void)
{
    return depth && stack[depth - 1] ? stack[depth - 1]->device : -1;
}

CUresult pretend_context_of(CUcontext context, struct pretend_context **found)
{
    CUresult result = pretend_enter();
    *found = context ? (void *)context : (void *)pretend_current();
    if (result != CUDA_SUCCESS)
        return result;
    if (!*found)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!pretend_is(PRETEND_A_CONTEXT, *found))
        return context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return CUDA_SUCCESS;
}

/* With `making` held. */
static CUresult make(CUdevice device, unsigned flags, unsigned version,
                     struct pretend_context **made)
{
    struct pretend_context *context;
    uint64_t bytes = pretend_device(device)->gpu->context_bytes;
    CUdeviceptr memory = 0;
    CUresult result = CUDA_SUCCESS;
    if (bytes)
        result = pretend_memory_take(device, bytes, MT_CATEGORY_CONTEXT, "context", &memory);
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    context = pretend_new(PRETEND_A_CONTEXT, sizeof *context);
    pretend_unlock();
    if (!context) {
        if (memory)
            pretend_memory_give(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->device = device;
    context->references = 1;
    context->flags = flags;
    context->version = version;
    context->id = pretend_next_id();
    context->memory = memory;
    __atomic_fetch_add(&pretend_cuda_account()->n_contexts, 1, __ATOMIC_RELAXED);
    *made = context;
    return CUDA_SUCCESS;
}

/* With `making` held. */
static void unload(struct pretend_context *context)
{
    int n = __atomic_exchange_n(&context->n_kernels, 0, __ATOMIC_ACQ_REL);
    for (int i = 0; i < n; i++)
        if (context->kernel_memory[i])
            pretend_memory_give(context->kernel_memory[i]);
}

/* With `making` held. */
static void destroy(struct pretend_context *context)
{
    CUdeviceptr memory = context->memory;
    pretend_context_ended(context);
    unload(context);
    pretend_lock();
    pretend_delete(PRETEND_A_CONTEXT, context);
    pretend_unlock();
    if (memory)
        pretend_memory_give(memory);
}

static int is_loaded(const struct pretend_context *context, const void *kernel)
{
    int n = __atomic_load_n(&context->n_kernels, __ATOMIC_ACQUIRE);
    for (int i = 0; i < n; i++)
        if (context->kernel[i] == kernel)
            return 1;
    return n == PRETEND_KERNELS_FULL;
}

/* What the code of `n` kernels takes, in the pieces that the driver gives memory out in. */
static uint64_t code_bytes(const struct pretend_context *context, int n)
{
    uint64_t bytes = pretend_device(context->device)->gpu->module_bytes;
    uint64_t share = bytes / PRETEND_KERNELS_FULL * (unsigned)n;
    if (n == PRETEND_KERNELS_FULL)
        share = bytes;
    return (share + PRETEND_PAGE - 1) / PRETEND_PAGE * PRETEND_PAGE;
}

CUresult pretend_context_load(struct pretend_context *context, const void *kernel)
{
    CUresult result = CUDA_SUCCESS;
    if (is_loaded(context, kernel))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&making);
    if (!is_loaded(context, kernel)) {
        int n = context->n_kernels;
        uint64_t bytes = code_bytes(context, n + 1) - code_bytes(context, n);
        context->kernel_memory[n] = 0;
        if (bytes)
            result = pretend_memory_take(context->device, bytes, MT_CATEGORY_CONTEXT, "kernels",
                                         &context->kernel_memory[n]);
        context->kernel[n] = kernel;
        if (result == CUDA_SUCCESS)
            __atomic_store_n(&context->n_kernels, n + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&making);
    return result;
}

static int are_flags(unsigned flags)
{
    unsigned schedule = flags & FLAGS_SCHEDULE;
    return !(flags & ~FLAGS_ALL) && (!(schedule & (schedule - 1)));
}

/* The primary context of a device. */

static CUresult retain(struct pretend_device *device, CUdevice number)
{
    CUresult result;
    if (device->primary) {
        device->primary->references++;
        return CUDA_SUCCESS;
    }
    result = make(number, device->primary_flags, 3020, &device->primary);
    if (result == CUDA_SUCCESS)
        device->primary->is_primary = 1;
    return result;
}

PRETEND_CALL CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice number)
{
    struct pretend_device *device;
    CUresult result = pretend_enter_device(number, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&making);
    result = retain(device, number);
    if (result == CUDA_SUCCESS)
        *context = (void *)device->primary;
    pthread_mutex_unlock(&making);
    return result;
}

PRETEND_CALL CUresult cuDevicePrimaryCtxRelease_v2(CUdevice number)
{
    struct pretend_device *device;
    CUresult result = pretend_enter_device(number, &device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&making);
    if (!device->primary) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (!--device->primary->references) {
        destroy(device->primary);
        device->primary = NULL;
    }
    pthread_mutex_unlock(&making);
    return result;
}

PRETEND_CALL CUresult cuDevicePrimaryCtxRelease(CUdevice number)
{
    return cuDevicePrimaryCtxRelease_v2(number);
}

/* Those who retained it keep their references; what was allocated there is gone. */
PRETEND_CALL CUresult cuDevicePrimaryCtxReset_v2(CUdevice number)
{
    struct pretend_device *device;
    CUresult result = pretend_enter_device(number, &device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&making);
    if (device->primary) {
        pretend_context_ended(device->primary);
        unload(device->primary);
        device->primary->peers = 0;
    }
    pthread_mutex_unlock(&making);
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuDevicePrimaryCtxReset(CUdevice number)
{
    return cuDevicePrimaryCtxReset_v2(number);
}

PRETEND_CALL CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice number, unsigned flags)
{
    struct pretend_device *device;
    CUresult result = pretend_enter_device(number, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!are_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&making);
    device->primary_flags = flags;
    if (device->primary)
        device->primary->flags = flags;
    pthread_mutex_unlock(&making);
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuDevicePrimaryCtxSetFlags(CUdevice number, unsigned flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(number, flags);
}

PRETEND_CALL CUresult cuDevicePrimaryCtxGetState(CUdevice number, unsigned *flags, int *is_active)
{
    struct pretend_device *device;
    CUresult result = pretend_enter_device(number, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags)
        *flags = device->primary_flags;
    if (is_active)
        *is_active = __atomic_load_n(&device->primary, __ATOMIC_ACQUIRE) != NULL;
    return CUDA_SUCCESS;
}

/* Contexts that a program makes. */

static CUresult create(CUcontext *context, unsigned flags, CUdevice number, unsigned version)
{
    struct pretend_device *device;
    struct pretend_context *made;
    CUresult result = pretend_enter_device(number, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context || !are_flags(flags) || depth == STACK_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&making);
    result = make(number, flags, version, &made);
    pthread_mutex_unlock(&making);
    if (result != CUDA_SUCCESS)
        return result;
    stack[depth++] = made;
    *context = (void *)made;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
    return create(context, flags, device, 2000);
}

PRETEND_CALL CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    return create(context, flags, device, 3020);
}

/* Execution affinity is for a service that shares a device between processes (MPS). */
PRETEND_CALL CUresult cuCtxCreate_v3(CUcontext *context, const void *affinities, int n_affinities,
                                     unsigned flags, CUdevice device)
{
    if (affinities || n_affinities)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create(context, flags, device, 3020);
}

PRETEND_CALL CUresult cuCtxCreate_v4(CUcontext *context, const CUctxCreateParams *params,
                                     unsigned flags, CUdevice device)
{
    if (params && (params->execAffinityParams || params->numExecAffinityParams))
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (params && params->cigParams)
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(context, flags, device, 3020);
}

PRETEND_CALL CUresult cuCtxDestroy_v2(CUcontext handle)
{
    struct pretend_context *context = (void *)handle;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&making);
    if (!pretend_is(PRETEND_A_CONTEXT, context)) {
        result = handle ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    } else if (context->is_primary) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else {
        if (pretend_current() == context)
            depth--;
        destroy(context);
    }
    pthread_mutex_unlock(&making);
    return result;
}

PRETEND_CALL CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

PRETEND_CALL CUresult cuCtxAttach(CUcontext *context, unsigned flags)
{
    struct pretend_context *current;
    CUresult result = pretend_context_of(NULL, &current);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context || flags)
        return CUDA_ERROR_INVALID_VALUE;
    current->references++;
    *context = (void *)current;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuCtxDetach(CUcontext context)
{
    struct pretend_context *current = (void *)context;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pretend_is(PRETEND_A_CONTEXT, current) || current != pretend_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (current->references == 1)
        return cuCtxDestroy_v2(context);
    current->references--;
    return CUDA_SUCCESS;
}

/* The stack of the calling thread. */

PRETEND_CALL CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pretend_is(PRETEND_A_CONTEXT, context) || depth == STACK_MOST)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = (void *)context;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuCtxPushCurrent(CUcontext context)
{
    return cuCtxPushCurrent_v2(context);
}

PRETEND_CALL CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = (void *)stack[depth];
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuCtxPopCurrent(CUcontext *context)
{
    return cuCtxPopCurrent_v2(context);
}

PRETEND_CALL CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!context) {
        depth -= depth > 0;
        return CUDA_SUCCESS;
    }
    if (!pretend_is(PRETEND_A_CONTEXT, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    depth += !depth;
    stack[depth - 1] = (void *)context;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = (void *)pretend_current();
    return CUDA_SUCCESS;
}
