/* SPDX-License-Identifier: MIT */
/* cuDNN's handles, its version and its words for errors. */
#include "dnn.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "version.h"

__attribute__((weak)) CUresult cuCtxGetDevice(CUdevice *device);

PRETEND_CALL size_t cudnnGetVersion(void);
PRETEND_CALL size_t cudnnGetVersion(void)
{
    return pretend_dnn_version();
}

PRETEND_CALL size_t cudnnGetMaxDeviceVersion(void);
PRETEND_CALL size_t cudnnGetMaxDeviceVersion(void)
{
    return 1200;
}

PRETEND_CALL size_t cudnnGetCudartVersion(void);
PRETEND_CALL size_t cudnnGetCudartVersion(void)
{
    int (*ask)(int *);
    int version = 0;
    *(void **)&ask = dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion");
    if (!ask || ask(&version) != 0)
        return 12080;
    return (size_t)version;
}

PRETEND_CALL int cudnnGetProperty(int property, int *value);
PRETEND_CALL int cudnnGetProperty(int property, int *value)
{
    int version = (int)pretend_dnn_version();
    int parts[] = {version / 10000, version / 100 % 100, version % 100};
    if (!value || property < 0 || property > 2)
        return DNN_BAD_PARAM;
    *value = parts[property];
    return DNN_SUCCESS;
}

PRETEND_CALL int cudnnCreate(struct pretend_dnn_handle **handle);
PRETEND_CALL int cudnnCreate(struct pretend_dnn_handle **handle)
{
    struct pretend_dnn_handle *made;
    if (!handle)
        return DNN_NULL_POINTER;
    made = calloc(1, sizeof *made);
    if (!made)
        return DNN_HOST_ALLOCATION_FAILED;
    if (!cuCtxGetDevice || cuCtxGetDevice(&made->device) != CUDA_SUCCESS)
        made->device = 0;
    *handle = made;
    return DNN_SUCCESS;
}

PRETEND_CALL int cudnnDestroy(struct pretend_dnn_handle *handle);
PRETEND_CALL int cudnnDestroy(struct pretend_dnn_handle *handle)
{
    free(handle);
    return DNN_SUCCESS;
}

PRETEND_CALL int cudnnSetStream(struct pretend_dnn_handle *handle, CUstream stream);
PRETEND_CALL int cudnnSetStream(struct pretend_dnn_handle *handle, CUstream stream)
{
    if (!handle)
        return DNN_BAD_PARAM;
    handle->stream = stream;
    return DNN_SUCCESS;
}

PRETEND_CALL int cudnnGetStream(struct pretend_dnn_handle *handle, CUstream *stream);
PRETEND_CALL int cudnnGetStream(struct pretend_dnn_handle *handle, CUstream *stream)
{
    if (!handle || !stream)
        return DNN_BAD_PARAM;
    *stream = handle->stream;
    return DNN_SUCCESS;
}

/* A handle's errors of kernels: none ran. */
PRETEND_CALL int cudnnQueryRuntimeError(void *handle, int *status, int mode, void *tag);
PRETEND_CALL int cudnnQueryRuntimeError(void *handle, int *status, int mode, void *tag)
{
    (void)mode;
    (void)tag;
    if (!handle || !status)
        return DNN_BAD_PARAM;
    *status = DNN_SUCCESS;
    return DNN_SUCCESS;
}

/* The versions of cuDNN's parts fit each other. */
#define VERSION_CHECK(name)                                                                        \
    PRETEND_CALL int name(void);                                                                   \
    PRETEND_CALL int name(void)                                                                    \
    {                                                                                              \
        return DNN_SUCCESS;                                                                        \
    }
VERSION_CHECK(cudnnAdvVersionCheck)
VERSION_CHECK(cudnnCnnVersionCheck)
VERSION_CHECK(cudnnGraphVersionCheck)
VERSION_CHECK(cudnnOpsVersionCheck)

PRETEND_CALL const char *cudnnGetErrorString(int status);
PRETEND_CALL const char *cudnnGetErrorString(int status)
{
    static const struct {
        int status;
        const char *name;
    } names[] = {
        {DNN_SUCCESS, "CUDNN_STATUS_SUCCESS"},
        {DNN_NOT_INITIALIZED, "CUDNN_STATUS_NOT_INITIALIZED"},
        {DNN_BAD_PARAM, "CUDNN_STATUS_BAD_PARAM"},
        {DNN_NULL_POINTER, "CUDNN_STATUS_BAD_PARAM_NULL_POINTER"},
        {DNN_NOT_FINALIZED, "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED"},
        {DNN_OUT_OF_BOUND, "CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND"},
        {DNN_ATTRIBUTE_TYPE, "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE"},
        {DNN_NOT_SUPPORTED, "CUDNN_STATUS_NOT_SUPPORTED"},
        {DNN_HOST_ALLOCATION_FAILED, "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"},
    };
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].status == status)
            return names[i].name;
    return "CUDNN_UNKNOWN_STATUS";
}

PRETEND_CALL void cudnnGetLastErrorString(char *message, size_t size);
PRETEND_CALL void cudnnGetLastErrorString(char *message, size_t size)
{
    if (message && size > 0)
        message[0] = '\0';
}

static struct {
    unsigned mask;
    void *data;
    void *function;
} callback;

/* Nothing is logged, so that the callback is only kept. */
PRETEND_CALL int cudnnSetCallback(unsigned mask, void *data, void *function);
PRETEND_CALL int cudnnSetCallback(unsigned mask, void *data, void *function)
{
    callback.mask = mask;
    callback.data = data;
    callback.function = function;
    return DNN_SUCCESS;
}

PRETEND_CALL int cudnnGetCallback(unsigned *mask, void **data, void **function);
PRETEND_CALL int cudnnGetCallback(unsigned *mask, void **data, void **function)
{
    if (!mask || !data || !function)
        return DNN_BAD_PARAM;
    *mask = callback.mask;
    *data = callback.data;
    *function = callback.function;
    return DNN_SUCCESS;
}
