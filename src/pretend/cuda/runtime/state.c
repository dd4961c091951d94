/* SPDX-License-Identifier: MIT */
/* What the runtime knows of a thread and of the process: the last error, the device, and the
 * primary contexts, which are made when something first needs them. */
#include <unistd.h>

#include "driver_calls.h"
#include "rehearse/account.h"
#include "runtime.h"

static __thread struct {
    int device;
    int has_chosen;
    cudaError_t last;
    CUcontext set; /* by us, as this thread's current one */
} thread;

static struct {
    int first_device; /* of threads that chose none: cudaSetValidDevices() */
    cudaError_t lasting;
    CUcontext held[MT_ACCOUNT_DEVICES_MAX]; /* primary contexts that we retained */
    uint32_t is_started;
} process;

/* Errors after which a context is of no use: they stay until the device is reset. */
static int lasts(int code)
{
    switch (code) {
    case 214: /* an uncorrectable error of memory, of NVLink */
    case 220:
    case 700: /* an illegal address, a time-out, a failed assertion */
    case 702:
    case 710:
    case 714: /* … to 719: faults of a kernel */
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
        return 1;
    default:
        return 0;
    }
}

/* cudaErrorNotReady is an answer and no error: it is not kept. */
cudaError_t runtime_note(int code)
{
    if (code == cudaSuccess || code == cudaErrorNotReady)
        return code;
    if (lasts(code))
        __atomic_store_n(&process.lasting, code, __ATOMIC_RELAXED);
    thread.last = code;
    return code;
}

EXPORTED(cudaPeekAtLastError, (void))
{
    cudaError_t lasting = __atomic_load_n(&process.lasting, __ATOMIC_RELAXED);
    return lasting ? lasting : thread.last;
}

EXPORTED(cudaGetLastError, (void))
{
    cudaError_t code = cudaPeekAtLastError();
    thread.last = cudaSuccess;
    return code;
}

/* A driver of an older major version than the runtime's cannot serve it. */
static int start(void)
{
    int version = 0;
    int result = cuInit(0);
    if (cuDriverGetVersion(&version) == CUDA_SUCCESS && version / 1000 < RUNTIME_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    return result;
}

int runtime_start(void)
{
    int result = __atomic_load_n(&process.lasting, __ATOMIC_RELAXED);
    if (result || __atomic_load_n(&process.is_started, __ATOMIC_ACQUIRE))
        return result;
    result = start();
    if (result == cudaSuccess)
        __atomic_store_n(&process.is_started, 1, __ATOMIC_RELEASE);
    return result;
}

int runtime_retain(int device, CUcontext *context)
{
    CUcontext none = NULL;
    if (device < 0 || device >= (int)MT_ACCOUNT_DEVICES_MAX)
        return cudaErrorInvalidDevice;
    *context = __atomic_load_n(&process.held[device], __ATOMIC_ACQUIRE);
    if (*context)
        return cudaSuccess;
    int result = cuDevicePrimaryCtxRetain(context, device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!__atomic_compare_exchange_n(&process.held[device], &none, *context, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        cuDevicePrimaryCtxRelease_v2(device);
        *context = none;
    }
    return cudaSuccess;
}

void runtime_forget(int device)
{
    CUcontext current = NULL;
    CUcontext held = __atomic_exchange_n(&process.held[device], NULL, __ATOMIC_ACQ_REL);
    __atomic_store_n(&process.lasting, cudaSuccess, __ATOMIC_RELAXED);
    if (!held)
        return;
    if (cuCtxGetCurrent(&current) == cudaSuccess && current == held)
        cuCtxSetCurrent(NULL);
    cuDevicePrimaryCtxRelease_v2(device);
}

/* Makes the primary context of a device the calling thread's. */
static int use(int device)
{
    CUcontext context = NULL;
    int result = runtime_retain(device, &context);
    if (result == cudaSuccess)
        result = cuCtxSetCurrent(context);
    if (result == cudaSuccess)
        thread.set = context;
    return result;
}

static int chosen_device(void)
{
    return thread.has_chosen ? thread.device : process.first_device;
}

/* Whether the thread's context is there still: one that we set may have been reset since. */
static int is_valid(CUcontext context)
{
    return context != thread.set ||
           context == __atomic_load_n(&process.held[chosen_device()], __ATOMIC_ACQUIRE);
}

int runtime_enter(void)
{
    CUcontext context = NULL;
    int result = runtime_start();
    if (result == cudaSuccess)
        result = cuCtxGetCurrent(&context);
    if (result != cudaSuccess)
        return result;
    return context && is_valid(context) ? cudaSuccess : use(chosen_device());
}

int runtime_device(void)
{
    CUcontext context = NULL;
    int device = -1;
    if (cuCtxGetCurrent(&context) == CUDA_SUCCESS && context && is_valid(context) &&
        cuCtxGetDevice(&device) == CUDA_SUCCESS)
        return device;
    return chosen_device();
}

/* The number of devices, or what is wrong. */
static int count_devices(int *count)
{
    int result = runtime_start();
    return result == cudaSuccess ? cuDeviceGetCount(count) : result;
}

EXPORTED(cudaGetDeviceCount, (int *count))
{
    if (!count)
        return runtime_note(cudaErrorInvalidValue);
    *count = 0;
    return runtime_note(count_devices(count));
}

EXPORTED(cudaGetDevice, (int *device))
{
    int result = runtime_start();
    if (result == cudaSuccess && !device)
        result = cudaErrorInvalidValue;
    if (result == cudaSuccess)
        *device = runtime_device();
    return runtime_note(result);
}

/* Since version 12 the primary context is made here, not by the first call that needs it. */
EXPORTED(cudaSetDevice, (int device))
{
    int count = 0;
    int result = count_devices(&count);
    if (result == cudaSuccess && (device < 0 || device >= count))
        result = cudaErrorInvalidDevice;
    if (result != cudaSuccess)
        return runtime_note(result);
    result = use(device);
    if (result == cudaSuccess) {
        thread.device = device;
        thread.has_chosen = 1;
    }
    return runtime_note(result);
}

EXPORTED(cudaSetValidDevices, (int *devices, int length))
{
    int count = 0;
    int result = count_devices(&count);
    if (result == cudaSuccess && (length < 0 || length > count || (length && !devices)))
        result = cudaErrorInvalidValue;
    for (int i = 0; result == cudaSuccess && i < length; i++)
        if (devices[i] < 0 || devices[i] >= count)
            result = cudaErrorInvalidDevice;
    if (result == cudaSuccess)
        process.first_device = length ? devices[0] : 0;
    return runtime_note(result);
}
