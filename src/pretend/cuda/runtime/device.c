/* SPDX-License-Identifier: MIT */
/* What a program asks of a device and sets for it: properties, flags, peers, a reset, and the
 * driver's functions by name. */
#include "driver_calls.h"
#include "runtime.h"

#define FLAGS_MASK      0x1fu /* of scheduling and memory; others are of one call */
#define FLAG_MAP_HOST   0x8u  /* always so */
#define FLAGS_ARE_VALID 1u

EXPORTED(cudaDriverGetVersion, (int *version))
{
    return runtime_note(version ? cuDriverGetVersion(version) : cudaErrorInvalidValue);
}

EXPORTED(cudaRuntimeGetVersion, (int *version))
{
    if (!version)
        return runtime_note(cudaErrorInvalidValue);
    *version = RUNTIME_VERSION;
    return cudaSuccess;
}

static int check_device(int device)
{
    int count = 0;
    int result = runtime_start();
    if (result == cudaSuccess)
        result = cuDeviceGetCount(&count);
    return result == cudaSuccess && (device < 0 || device >= count) ? cudaErrorInvalidDevice
                                                                    : result;
}

#define PROPERTY(field, attribute)                                                                 \
    value = 0;                                                                                     \
    cuDeviceGetAttribute(&value, attribute, device);                                               \
    out->field = (__typeof__(out->field))value;
#if RUNTIME_VERSION < 13000
#define PROPERTY_12(field, attribute) PROPERTY(field, attribute)
#define PROPERTY_13(field, attribute)
#else
#define PROPERTY_12(field, attribute)
#define PROPERTY_13(field, attribute) PROPERTY(field, attribute)
#endif

static void read_properties(struct cudaDeviceProp *out, int device)
{
    int value;
#include "properties.def"
}

static cudaError_t get_properties(struct cudaDeviceProp *out, int device)
{
    int result = out ? check_device(device) : cudaErrorInvalidValue;
    if (result != cudaSuccess)
        return runtime_note(result);
    *out = (struct cudaDeviceProp){0};
    cuDeviceGetName(out->name, sizeof out->name, device);
    cuDeviceGetUuid_v2(&out->uuid, device);
    cuDeviceTotalMem_v2(&out->totalGlobalMem, device);
    read_properties(out, device);
    return cudaSuccess;
}

#if RUNTIME_VERSION < 13000
EXPORTED(cudaGetDeviceProperties_v2, (struct cudaDeviceProp * out, int device))
{
    return get_properties(out, device);
}

/* The structure of CUDA 11, which ends where 12 began to add. */
EXPORTED(cudaGetDeviceProperties, (void *out, int device))
{
    struct cudaDeviceProp all;
    cudaError_t result = out ? get_properties(&all, device) : runtime_note(cudaErrorInvalidValue);
    if (result == cudaSuccess)
        __builtin_memcpy(out, &all, offsetof(struct cudaDeviceProp, hostRegisterSupported));
    return result;
}

EXPORTED(cudaSetDoubleForDevice, (double *value))
{
    (void)value;
    return cudaSuccess;
}

EXPORTED(cudaSetDoubleForHost, (double *value))
{
    (void)value;
    return cudaSuccess;
}
#else
EXPORTED(cudaGetDeviceProperties, (struct cudaDeviceProp * out, int device))
{
    return get_properties(out, device);
}
#endif

/* All devices of a rehearsal serve: the first does. */
EXPORTED(cudaChooseDevice, (int *device, const struct cudaDeviceProp *wanted))
{
    int result = device && wanted ? check_device(0) : cudaErrorInvalidValue;
    if (result == cudaSuccess)
        *device = 0;
    return runtime_note(result);
}

EXPORTED(cudaSetDeviceFlags, (unsigned flags))
{
    int result = runtime_start();
    if (result == cudaSuccess && flags & ~FLAGS_MASK)
        result = cudaErrorInvalidValue;
    if (result == cudaSuccess)
        result = cuDevicePrimaryCtxSetFlags_v2(runtime_device(), flags);
    return runtime_note(result);
}

EXPORTED(cudaGetDeviceFlags, (unsigned *flags))
{
    int active = 0;
    int result = runtime_start();
    if (result == cudaSuccess && !flags)
        result = cudaErrorInvalidValue;
    if (result == cudaSuccess)
        result = cuDevicePrimaryCtxGetState(runtime_device(), flags, &active);
    if (result == cudaSuccess)
        *flags |= FLAG_MAP_HOST;
    return runtime_note(result);
}

/* Makes the device's context and does not choose it. */
EXPORTED(cudaInitDevice, (int device, unsigned device_flags, unsigned flags))
{
    CUcontext context = NULL;
    int result = check_device(device);
    if (result == cudaSuccess && flags & FLAGS_ARE_VALID)
        result = cuDevicePrimaryCtxSetFlags_v2(device, device_flags & FLAGS_MASK);
    if (result == cudaSuccess)
        result = runtime_retain(device, &context);
    return runtime_note(result);
}

/* All that the process holds of the device goes with its context. */
EXPORTED(cudaDeviceReset, (void))
{
    int result = runtime_start();
    int device = result == cudaSuccess || cuInit(0) == CUDA_SUCCESS ? runtime_device() : -1;
    if (device < 0)
        return runtime_note(result);
    runtime_drop_symbols(device);
    result = cuDevicePrimaryCtxReset_v2(device);
    runtime_forget(device);
    return runtime_note(result);
}

#if RUNTIME_VERSION < 13000
EXPORTED(cudaThreadExit, (void))
{
    return cudaDeviceReset();
}
#endif

/* The driver speaks of a peer by its context. */
int cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
int cuCtxDisablePeerAccess(CUcontext peer);

static int enter_peer(int device, CUcontext *context)
{
    int result = check_device(device);
    if (result == cudaSuccess)
        result = runtime_enter();
    return result == cudaSuccess ? runtime_retain(device, context) : result;
}

EXPORTED(cudaDeviceEnablePeerAccess, (int peer, unsigned flags))
{
    CUcontext context = NULL;
    int result = enter_peer(peer, &context);
    return runtime_note(result != cudaSuccess ? result : cuCtxEnablePeerAccess(context, flags));
}

EXPORTED(cudaDeviceDisablePeerAccess, (int peer))
{
    CUcontext context = NULL;
    int result = enter_peer(peer, &context);
    return runtime_note(result != cudaSuccess ? result : cuCtxDisablePeerAccess(context));
}

/* Private tables: the driver answers none. */
int cuGetExportTable(const void **table, const CUuuid *id);
EXPORTED(cudaGetExportTable, (const void **table, const CUuuid *id))
{
    return runtime_note(cuGetExportTable(table, id));
}

/* The driver's functions by name. Who asks for the status gets no error for a name that is none. */
static cudaError_t entry_point(const char *symbol, void **function, int version,
                               unsigned long long flags, int *status)
{
    int found = 0;
    int result = runtime_start();
    if (result == cudaSuccess)
        result = symbol && function ? cudaSuccess : cudaErrorInvalidValue;
    if (result != cudaSuccess)
        return runtime_note(result);
    *function = NULL;
    result = cuGetProcAddress_v2(symbol, function, version, flags, &found);
    if (status)
        *status = found;
    if (result == CUDA_ERROR_NOT_FOUND && status)
        return cudaSuccess;
    return runtime_note(result);
}

#define PER_THREAD_FLAGS(flags) ((flags) ? (flags) : 2)
#define AS_IT_IS(flags)         flags
#define ENTRY_POINT(name, how)                                                                     \
    EXPORTED(name, (const char *symbol, void **function, unsigned long long flags, int *status))   \
    {                                                                                              \
        return entry_point(symbol, function, RUNTIME_VERSION, how(flags), status);                 \
    }
#define ENTRY_POINT_BY_VERSION(name, how)                                                          \
    EXPORTED(name, (const char *symbol, void **function, unsigned version,                         \
                    unsigned long long flags, int *status))                                        \
    {                                                                                              \
        return entry_point(symbol, function, (int)version, how(flags), status);                    \
    }
ENTRY_POINT(cudaGetDriverEntryPoint, AS_IT_IS)
ENTRY_POINT(cudaGetDriverEntryPoint_ptsz, PER_THREAD_FLAGS)
ENTRY_POINT_BY_VERSION(cudaGetDriverEntryPointByVersion, AS_IT_IS)
ENTRY_POINT_BY_VERSION(cudaGetDriverEntryPointByVersion_ptsz, PER_THREAD_FLAGS)
