/* SPDX-License-Identifier: MIT */
/* Descriptors of tensors, filters, convolutions and dropout. */
#include <stdlib.h>
#include <string.h>

#include "dnn.h"
#include "pretend/cuda/call.h"
#include "pretend/cuda/unknown.h"

typedef struct pretend_dnn_descriptor descriptor;

enum { FORMAT_NCHW, FORMAT_NHWC };

static int are_dims(const void *d, int n_dims, const void *dims)
{
    return d && dims && n_dims >= 1 && n_dims <= DNN_DIMS_MAX;
}

int pretend_dnn_tensor_set(descriptor *tensor, int type, int n_dims, const int *dims)
{
    int i;
    int stride = 1;
    if (!are_dims(tensor, n_dims, dims))
        return DNN_BAD_PARAM;
    tensor->type = type;
    tensor->n_dims = n_dims;
    for (i = n_dims - 1; i >= 0; i--) {
        tensor->dims[i] = dims[i];
        tensor->strides[i] = stride;
        stride *= dims[i];
    }
    return DNN_SUCCESS;
}

/* Channels last: the second dimension has the smallest stride. */
static void last_channels(descriptor *tensor)
{
    int i;
    int stride = tensor->n_dims > 1 ? tensor->dims[1] : 1;
    for (i = tensor->n_dims - 1; i >= 2; i--) {
        tensor->strides[i] = stride;
        stride *= tensor->dims[i];
    }
    if (tensor->n_dims > 1)
        tensor->strides[1] = 1;
    tensor->strides[0] = stride;
}

/* The first `wanted` of a descriptor's numbers. */
static void tell_dims(const int *from, int n_dims, int wanted, int *into)
{
    if (into && wanted > 0)
        memcpy(into, from, (size_t)(wanted < n_dims ? wanted : n_dims) * sizeof *into);
}

static void tell(int *into, int value)
{
    if (into)
        *into = value;
}

CALL(cudnnSetTensorNdDescriptor,
     (void *handle, int type, int n_dims, const int *dims, const int *strides), {
         descriptor *d = pretend_dnn_descriptor(handle, DNN_TENSOR);
         int status = pretend_dnn_tensor_set(d, type, n_dims, dims);
         if (status == DNN_SUCCESS && strides)
             memcpy(d->strides, strides, (size_t)n_dims * sizeof *strides);
         return status;
     })
CALL(cudnnSetTensorNdDescriptorEx,
     (void *handle, int format, int type, int n_dims, const int *dims), {
         descriptor *d = pretend_dnn_descriptor(handle, DNN_TENSOR);
         int status = pretend_dnn_tensor_set(d, type, n_dims, dims);
         if (status == DNN_SUCCESS && format == FORMAT_NHWC)
             last_channels(d);
         return status;
     })
CALL(cudnnSetTensor4dDescriptor, (void *handle, int format, int type, int n, int c, int h, int w),
     return cudnnSetTensorNdDescriptorEx(handle, format, type, 4, (int[]){n, c, h, w});)
CALL(cudnnSetTensor4dDescriptorEx,
     (void *handle, int type, int n, int c, int h, int w, int step_n, int step_c, int step_h,
      int step_w),
     return cudnnSetTensorNdDescriptor(handle, type, 4, (int[]){n, c, h, w},
                                       (int[]){step_n, step_c, step_h, step_w});)
CALL(cudnnGetTensorNdDescriptor,
     (void *handle, int wanted, int *type, int *n_dims, int *dims, int *strides), {
         const descriptor *d = pretend_dnn_descriptor(handle, DNN_TENSOR);
         if (!d)
             return DNN_BAD_PARAM;
         tell(type, d->type);
         tell(n_dims, d->n_dims);
         tell_dims(d->dims, d->n_dims, wanted, dims);
         tell_dims(d->strides, d->n_dims, wanted, strides);
         return DNN_SUCCESS;
     })
CALL(cudnnGetTensor4dDescriptor,
     (void *handle, int *type, int *n, int *c, int *h, int *w, int *step_n, int *step_c,
      int *step_h, int *step_w),
     {
         const descriptor *d = pretend_dnn_descriptor(handle, DNN_TENSOR);
         int *dims[] = {n, c, h, w};
         int *strides[] = {step_n, step_c, step_h, step_w};
         int i;
         if (!d || d->n_dims != 4)
             return DNN_BAD_PARAM;
         tell(type, d->type);
         for (i = 0; i < 4; i++) {
             tell(dims[i], d->dims[i]);
             tell(strides[i], d->strides[i]);
         }
         return DNN_SUCCESS;
     })

/* From the first to the last element that the strides reach. */
static size_t reach_bytes(const descriptor *d)
{
    size_t reach = 1;
    int i;
    for (i = 0; i < d->n_dims; i++)
        reach += d->dims[i] > 0 ? (size_t)(d->dims[i] - 1) * (size_t)d->strides[i] : 0;
    return reach * pretend_dnn_element_bytes(d->type);
}

CALL(cudnnGetTensorSizeInBytes, (void *handle, size_t *bytes), {
    const descriptor *d = pretend_dnn_descriptor(handle, DNN_TENSOR);
    if (!d || !bytes)
        return DNN_BAD_PARAM;
    *bytes = reach_bytes(d);
    return DNN_SUCCESS;
})

CALL(cudnnSetFilterNdDescriptor, (void *handle, int type, int format, int n_dims, const int *dims),
     {
         descriptor *d = pretend_dnn_descriptor(handle, DNN_FILTER);
         int status = pretend_dnn_tensor_set(d, type, n_dims, dims);
         if (status == DNN_SUCCESS)
             d->format = format;
         return status;
     })
CALL(cudnnSetFilter4dDescriptor, (void *handle, int type, int format, int k, int c, int h, int w),
     return cudnnSetFilterNdDescriptor(handle, type, format, 4, (int[]){k, c, h, w});)
CALL(cudnnGetFilterNdDescriptor,
     (void *handle, int wanted, int *type, int *format, int *n_dims, int *dims), {
         const descriptor *d = pretend_dnn_descriptor(handle, DNN_FILTER);
         if (!d)
             return DNN_BAD_PARAM;
         tell(type, d->type);
         tell(format, d->format);
         tell(n_dims, d->n_dims);
         tell_dims(d->dims, d->n_dims, wanted, dims);
         return DNN_SUCCESS;
     })
CALL(cudnnGetFilterSizeInBytes, (void *handle, size_t *bytes), {
    const descriptor *d = pretend_dnn_descriptor(handle, DNN_FILTER);
    if (!d || !bytes)
        return DNN_BAD_PARAM;
    *bytes = reach_bytes(d);
    return DNN_SUCCESS;
})

/* Convolution: mode, groups, mathematics, reordering in `values`, padding in `dims`. */
enum { MODE, GROUPS, MATH, REORDER };

CALL(cudnnSetConvolutionNdDescriptor,
     (void *handle, int n_dims, const int *padding, const int *strides, const int *dilations,
      int mode, int type),
     {
         descriptor *d = pretend_dnn_descriptor(handle, DNN_CONVOLUTION);
         size_t bytes = (size_t)n_dims * sizeof(int);
         if (!are_dims(d, n_dims, padding) || !strides || !dilations)
             return DNN_BAD_PARAM;
         d->n_dims = n_dims;
         d->type = type;
         d->values[MODE] = mode;
         d->values[GROUPS] = d->values[GROUPS] > 0 ? d->values[GROUPS] : 1;
         memcpy(d->dims, padding, bytes);
         memcpy(d->strides, strides, bytes);
         memcpy(d->dilations, dilations, bytes);
         return DNN_SUCCESS;
     })
CALL(cudnnSetConvolution2dDescriptor,
     (void *handle, int pad_h, int pad_w, int step_h, int step_w, int apart_h, int apart_w,
      int mode, int type),
     return cudnnSetConvolutionNdDescriptor(handle, 2, (int[]){pad_h, pad_w},
                                            (int[]){step_h, step_w}, (int[]){apart_h, apart_w},
                                            mode, type);)
CALL(cudnnGetConvolutionNdDescriptor,
     (void *handle, int wanted, int *n_dims, int *padding, int *strides, int *dilations, int *mode,
      int *type),
     {
         const descriptor *d = pretend_dnn_descriptor(handle, DNN_CONVOLUTION);
         if (!d)
             return DNN_BAD_PARAM;
         tell(n_dims, d->n_dims);
         tell_dims(d->dims, d->n_dims, wanted, padding);
         tell_dims(d->strides, d->n_dims, wanted, strides);
         tell_dims(d->dilations, d->n_dims, wanted, dilations);
         tell(mode, d->values[MODE]);
         tell(type, d->type);
         return DNN_SUCCESS;
     })

#define CONVOLUTION_VALUE(name, place)                                                             \
    CALL(cudnnSetConvolution##name, (void *handle, int value), {                                   \
        descriptor *d = pretend_dnn_descriptor(handle, DNN_CONVOLUTION);                           \
        if (!d)                                                                                    \
            return DNN_BAD_PARAM;                                                                  \
        d->values[place] = value;                                                                  \
        return DNN_SUCCESS;                                                                        \
    })                                                                                             \
    CALL(cudnnGetConvolution##name, (void *handle, int *value), {                                  \
        const descriptor *d = pretend_dnn_descriptor(handle, DNN_CONVOLUTION);                     \
        if (!d || !value)                                                                          \
            return DNN_BAD_PARAM;                                                                  \
        *value = d->values[place];                                                                 \
        return DNN_SUCCESS;                                                                        \
    })
CONVOLUTION_VALUE(MathType, MATH)
CONVOLUTION_VALUE(GroupCount, GROUPS)
CONVOLUTION_VALUE(ReorderType, REORDER)

/* As the documentation gives it: 1 + (input + 2 pad - ((filter - 1) dilation + 1)) / stride. */
CALL(cudnnGetConvolutionNdForwardOutputDim,
     (void *convolution, void *input, void *filter, int n_dims, int *dims), {
         const descriptor *c = pretend_dnn_descriptor(convolution, DNN_CONVOLUTION);
         const descriptor *x = pretend_dnn_descriptor(input, DNN_TENSOR);
         const descriptor *w = pretend_dnn_descriptor(filter, DNN_FILTER);
         int i;
         if (!c || !x || !w || !dims || n_dims != c->n_dims + 2 || x->n_dims != n_dims ||
             w->n_dims != n_dims)
             return DNN_BAD_PARAM;
         dims[0] = x->dims[0];
         dims[1] = w->dims[0];
         for (i = 0; i < c->n_dims; i++) {
             if (c->strides[i] < 1)
                 return DNN_BAD_PARAM;
             dims[i + 2] = 1 + (x->dims[i + 2] + 2 * c->dims[i] -
                                ((w->dims[i + 2] - 1) * c->dilations[i] + 1)) /
                                   c->strides[i];
         }
         return DNN_SUCCESS;
     })
CALL(cudnnGetConvolution2dForwardOutputDim,
     (void *convolution, void *input, void *filter, int *n, int *c, int *h, int *w), {
         int dims[4];
         int status = cudnnGetConvolutionNdForwardOutputDim(convolution, input, filter, 4, dims);
         if (status == DNN_SUCCESS) {
             tell(n, dims[0]);
             tell(c, dims[1]);
             tell(h, dims[2]);
             tell(w, dims[3]);
         }
         return status;
     })

/* Scale, bias, mean and variance: one value for each channel, or for each element of a sample. */
CALL(cudnnDeriveBNTensorDescriptor, (void *derived, void *input, int mode), {
    descriptor *d = pretend_dnn_descriptor(derived, DNN_TENSOR);
    const descriptor *x = pretend_dnn_descriptor(input, DNN_TENSOR);
    int dims[DNN_DIMS_MAX];
    int i;
    if (!d || !x || x->n_dims < 2)
        return DNN_BAD_PARAM;
    for (i = 0; i < x->n_dims; i++)
        dims[i] = i == 0 || (i > 1 && mode != 0) ? 1 : x->dims[i];
    return pretend_dnn_tensor_set(d, x->type == 1 ? 1 : 0, x->n_dims, dims);
})

/* A generator of the XORWOW kind for each thread that a device can hold: six 32-bit words. That is
 * what releases before 9 answered on several cards; it is not documented. */
CALL(cudnnDropoutGetStatesSize, (struct pretend_dnn_handle * handle, size_t *bytes), {
    static int told;
    const struct mt_gpu_spec *gpu;
    if (!handle || !bytes)
        return DNN_BAD_PARAM;
    gpu = pretend_cuda_gpu(handle->device);
    *bytes = gpu ? (size_t)gpu->multiprocessors * gpu->threads_most * 24 : 24;
    pretend_at_least("cudnnDropoutGetStatesSize", &told);
    return DNN_SUCCESS;
})

/* A bit for each element. */
CALL(cudnnDropoutGetReserveSpaceSize, (void *tensor, size_t *bytes), {
    const descriptor *d = pretend_dnn_descriptor(tensor, DNN_TENSOR);
    static int told;
    if (!d || !bytes)
        return DNN_BAD_PARAM;
    *bytes = (reach_bytes(d) / pretend_dnn_element_bytes(d->type) + 7) / 8;
    pretend_at_least("cudnnDropoutGetReserveSpaceSize", &told);
    return DNN_SUCCESS;
})

CALL(cudnnSetDropoutDescriptor,
     (void *handle, void *library, float share, void *states, size_t bytes,
      unsigned long long seed),
     {
         descriptor *d = pretend_dnn_descriptor(handle, DNN_DROPOUT);
         (void)bytes;
         if (!d || !library)
             return DNN_BAD_PARAM;
         d->reals[0] = (double)share;
         d->pointer = states;
         d->seed = seed;
         return DNN_SUCCESS;
     })
CALL(cudnnRestoreDropoutDescriptor,
     (void *handle, void *library, float share, void *states, size_t bytes,
      unsigned long long seed),
     return cudnnSetDropoutDescriptor(handle, library, share, states, bytes, seed);)
CALL(cudnnGetDropoutDescriptor,
     (void *handle, void *library, float *share, void **states, unsigned long long *seed), {
         const descriptor *d = pretend_dnn_descriptor(handle, DNN_DROPOUT);
         if (!d || !library)
             return DNN_BAD_PARAM;
         if (share)
             *share = (float)d->reals[0];
         if (states)
             *states = d->pointer;
         if (seed)
             *seed = d->seed;
         return DNN_SUCCESS;
     })
