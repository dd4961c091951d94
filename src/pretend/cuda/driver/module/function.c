/* SPDX-License-Identifier: MIT */
/* What a program asks of functions and kernels, and sets. */
#include <string.h>

#include "module.h"
#include "pretend/cuda/abi/driver_calls.h"

#define FUNCTION_LOADED 1

static CUresult get_attribute(int *value, int attribute, const void *handle, CUdevice device)
{
    const struct pretend_function *function = pretend_function_of(handle);
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!value || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!pretend_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (function->module->image[device].binary == PRETEND_NO_CODE)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *value = function->attribute[attribute];
    if (attribute == CU_FUNC_ATTRIBUTE_BINARY_VERSION)
        *value = (int)function->module->image[device].binary;
    if (attribute == CU_FUNC_ATTRIBUTE_PTX_VERSION)
        *value = (int)function->module->image[device].ptx;
    return CUDA_SUCCESS;
}

/* The attributes that a program may set, by the documentation of cuFuncSetAttribute. */
static CUresult set_attribute(const void *handle, int attribute, int value, CUdevice device)
{
    struct pretend_function *function = pretend_function_of(handle);
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pretend_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    int most = (int)pretend_device(device)->gpu->shared_block_bytes -
               function->attribute[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || value > most)
            return CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    function->attribute[attribute] = value;
    return CUDA_SUCCESS;
}

/* A function is of the current context; without one, of the first device. */
static CUdevice here(void)
{
    return pretend_current_device() < 0 ? 0 : pretend_current_device();
}

PRETEND_CALL CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    return get_attribute(value, attribute, function, here());
}

PRETEND_CALL CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    return set_attribute(function, attribute, value, here());
}

PRETEND_CALL CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel,
                                           CUdevice device)
{
    return get_attribute(value, attribute, kernel, device);
}

PRETEND_CALL CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel,
                                           CUdevice device)
{
    return set_attribute(kernel, attribute, value, device);
}

static CUresult check(const void *handle)
{
    return pretend_function_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

PRETEND_CALL CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
    (void)config;
    return check(function);
}

PRETEND_CALL CUresult cuFuncSetSharedMemConfig(CUfunction function, int config)
{
    (void)config;
    return check(function);
}

PRETEND_CALL CUresult cuKernelSetCacheConfig(CUkernel kernel, int config, CUdevice device)
{
    (void)config, (void)device;
    return check(kernel);
}

PRETEND_CALL CUresult cuFuncLoad(CUfunction function)
{
    struct pretend_context *context;
    CUresult result = pretend_context_of(NULL, &context);
    if (result == CUDA_SUCCESS)
        result = check(function);
    return result == CUDA_SUCCESS ? pretend_context_load(context, function) : result;
}

PRETEND_CALL CUresult cuFuncIsLoaded(int *state, CUfunction function)
{
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = FUNCTION_LOADED;
    return check(function);
}

PRETEND_CALL CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    *function = (void *)kernel;
    return check(kernel);
}

static CUresult get_name(const char **name, const void *handle)
{
    const struct pretend_function *function = pretend_function_of(handle);
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    *name = function->name;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuFuncGetName(const char **name, CUfunction function)
{
    return get_name(name, function);
}

PRETEND_CALL CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    return get_name(name, kernel);
}

static CUresult get_module(void *module, const void *handle)
{
    const struct pretend_function *function = pretend_function_of(handle);
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    memcpy(module, &function->module, sizeof function->module);
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    return get_module(module, function);
}

PRETEND_CALL CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    return get_module(library, kernel);
}
