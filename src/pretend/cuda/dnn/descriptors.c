/* SPDX-License-Identifier: MIT */
/* Descriptors of cuDNN's older interface: small objects that give back what was set. */
#include "dnn.h"

#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/call.h"

typedef struct pretend_dnn_descriptor descriptor;

descriptor *pretend_dnn_descriptor(void *handle, enum pretend_dnn_kind kind)
{
    descriptor *d = handle;
    return d && d->kind == kind ? d : NULL;
}

size_t pretend_dnn_element_bytes(int type)
{
    static const unsigned char bytes[] = {4, 8, 2, 1, 4, 4, 1, 4, 32, 2, 8, 1, 1, 1, 4, 1};
    return type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 0;
}

static int create(descriptor **made, enum pretend_dnn_kind kind)
{
    if (!made)
        return DNN_NULL_POINTER;
    *made = calloc(1, sizeof **made);
    if (!*made)
        return DNN_HOST_ALLOCATION_FAILED;
    (*made)->kind = kind;
    return DNN_SUCCESS;
}

static int destroy(void *handle, enum pretend_dnn_kind kind)
{
    descriptor *d = pretend_dnn_descriptor(handle, kind);
    if (!d)
        return !handle ? DNN_SUCCESS : DNN_BAD_PARAM;
    free(d->lengths);
    d->kind = 0;
    free(d);
    return DNN_SUCCESS;
}

#define DESCRIPTOR(name, of_kind)                                                                  \
    PRETEND_CALL int cudnnCreate##name##Descriptor(descriptor **made);                             \
    PRETEND_CALL int cudnnCreate##name##Descriptor(descriptor **made)                              \
    {                                                                                              \
        return create(made, of_kind);                                                              \
    }                                                                                              \
    PRETEND_CALL int cudnnDestroy##name##Descriptor(void *d);                                      \
    PRETEND_CALL int cudnnDestroy##name##Descriptor(void *d)                                       \
    {                                                                                              \
        return destroy(d, of_kind);                                                                \
    }
DESCRIPTOR(Tensor, DNN_TENSOR)
DESCRIPTOR(Filter, DNN_FILTER)
DESCRIPTOR(Convolution, DNN_CONVOLUTION)
DESCRIPTOR(Activation, DNN_ACTIVATION)
DESCRIPTOR(Pooling, DNN_POOLING)
DESCRIPTOR(LRN, DNN_LRN)
DESCRIPTOR(Dropout, DNN_DROPOUT)
DESCRIPTOR(OpTensor, DNN_OP_TENSOR)
DESCRIPTOR(ReduceTensor, DNN_REDUCE_TENSOR)
DESCRIPTOR(SpatialTransformer, DNN_SPATIAL_TRANSFORMER)
DESCRIPTOR(TensorTransform, DNN_TENSOR_TRANSFORM)
DESCRIPTOR(CTCLoss, DNN_CTC_LOSS)
DESCRIPTOR(RNN, DNN_RNN)
DESCRIPTOR(RNNData, DNN_RNN_DATA)

/* Keeps and tells integers in the order of a call's arguments. */
static int keep(void *handle, enum pretend_dnn_kind kind, int n, const int *values)
{
    descriptor *d = pretend_dnn_descriptor(handle, kind);
    if (!d)
        return DNN_BAD_PARAM;
    memcpy(d->values, values, (size_t)n * sizeof *values);
    return DNN_SUCCESS;
}

static int tell(const void *handle, enum pretend_dnn_kind kind, int n, int *const *values)
{
    const descriptor *d = handle;
    int i;
    if (!d || d->kind != kind)
        return DNN_BAD_PARAM;
    for (i = 0; i < n; i++)
        if (values[i])
            *values[i] = d->values[i];
    return DNN_SUCCESS;
}

CALL(cudnnSetOpTensorDescriptor, (void *d, int op, int type, int nan),
     return keep(d, DNN_OP_TENSOR, 3, (int[]){op, type, nan});)
CALL(cudnnGetOpTensorDescriptor, (const void *d, int *op, int *type, int *nan),
     return tell(d, DNN_OP_TENSOR, 3, (int *[]){op, type, nan});)
CALL(cudnnSetReduceTensorDescriptor,
     (void *d, int op, int type, int nan, int indices, int index_type),
     return keep(d, DNN_REDUCE_TENSOR, 5, (int[]){op, type, nan, indices, index_type});)
CALL(cudnnGetReduceTensorDescriptor,
     (const void *d, int *op, int *type, int *nan, int *indices, int *index_type),
     return tell(d, DNN_REDUCE_TENSOR, 5, (int *[]){op, type, nan, indices, index_type});)

/* CTC loss: type, normalisation, gradient, longest label. */
CALL(cudnnSetCTCLossDescriptor, (void *d, int type),
     return keep(d, DNN_CTC_LOSS, 1, (int[]){type});)
CALL(cudnnSetCTCLossDescriptorEx, (void *d, int type, int normal, int gradient),
     return keep(d, DNN_CTC_LOSS, 3, (int[]){type, normal, gradient});)
CALL(cudnnSetCTCLossDescriptor_v8, (void *d, int type, int normal, int gradient, int longest),
     return keep(d, DNN_CTC_LOSS, 4, (int[]){type, normal, gradient, longest});)
CALL(cudnnSetCTCLossDescriptor_v9, (void *d, int type, int normal, int gradient, int longest),
     return keep(d, DNN_CTC_LOSS, 4, (int[]){type, normal, gradient, longest});)
CALL(cudnnGetCTCLossDescriptor, (const void *d, int *type),
     return tell(d, DNN_CTC_LOSS, 1, (int *[]){type});)
CALL(cudnnGetCTCLossDescriptorEx, (const void *d, int *type, int *normal, int *gradient),
     return tell(d, DNN_CTC_LOSS, 3, (int *[]){type, normal, gradient});)
CALL(cudnnGetCTCLossDescriptor_v8,
     (const void *d, int *type, int *normal, int *gradient, int *longest),
     return tell(d, DNN_CTC_LOSS, 4, (int *[]){type, normal, gradient, longest});)
CALL(cudnnGetCTCLossDescriptor_v9,
     (const void *d, int *type, int *normal, int *gradient, int *longest),
     return tell(d, DNN_CTC_LOSS, 4, (int *[]){type, normal, gradient, longest});)

CALL(cudnnSetPooling2dDescriptor,
     (void *d, int mode, int nan, int height, int width, int pad_h, int pad_w, int step_h,
      int step_w),
     return keep(d, DNN_POOLING, 8,
                 (int[]){mode, nan, height, width, pad_h, pad_w, step_h, step_w});)
CALL(cudnnGetPooling2dDescriptor,
     (const void *d, int *mode, int *nan, int *height, int *width, int *pad_h, int *pad_w,
      int *step_h, int *step_w),
     return tell(d, DNN_POOLING, 8,
                 (int *[]){mode, nan, height, width, pad_h, pad_w, step_h, step_w});)

CALL(cudnnSetActivationDescriptor, (void *d, int mode, int nan, double coefficient), {
    int status = keep(d, DNN_ACTIVATION, 2, (int[]){mode, nan});
    if (status == DNN_SUCCESS)
        ((descriptor *)d)->reals[0] = coefficient;
    return status;
})
CALL(cudnnGetActivationDescriptor, (const void *d, int *mode, int *nan, double *coefficient), {
    int status = tell(d, DNN_ACTIVATION, 2, (int *[]){mode, nan});
    if (status == DNN_SUCCESS && coefficient)
        *coefficient = ((const descriptor *)d)->reals[0];
    return status;
})
CALL(cudnnSetActivationDescriptorSwishBeta, (void *handle, double beta), {
    descriptor *d = pretend_dnn_descriptor(handle, DNN_ACTIVATION);
    if (!d)
        return DNN_BAD_PARAM;
    d->reals[1] = beta;
    return DNN_SUCCESS;
})
CALL(cudnnGetActivationDescriptorSwishBeta, (void *handle, double *beta), {
    descriptor *d = pretend_dnn_descriptor(handle, DNN_ACTIVATION);
    if (!d || !beta)
        return DNN_BAD_PARAM;
    *beta = d->reals[1];
    return DNN_SUCCESS;
})

CALL(cudnnSetLRNDescriptor, (void *d, unsigned n, double alpha, double beta, double k), {
    int status = keep(d, DNN_LRN, 1, (int[]){(int)n});
    if (status == DNN_SUCCESS)
        memcpy(((descriptor *)d)->reals, (double[]){alpha, beta, k}, 3 * sizeof(double));
    return status;
})
CALL(cudnnGetLRNDescriptor, (void *d, unsigned *n, double *alpha, double *beta, double *k), {
    int status = tell(d, DNN_LRN, 1, (int *[]){(int *)n});
    double *reals[] = {alpha, beta, k};
    int i;
    for (i = 0; status == DNN_SUCCESS && i < 3; i++)
        if (reals[i])
            *reals[i] = ((descriptor *)d)->reals[i];
    return status;
})

CALL(cudnnSetSpatialTransformerNdDescriptor,
     (void *handle, int sampler, int type, int n_dims, const int *dims), {
         descriptor *d = pretend_dnn_descriptor(handle, DNN_SPATIAL_TRANSFORMER);
         if (!d || !dims || n_dims < 1 || n_dims > DNN_DIMS_MAX)
             return DNN_BAD_PARAM;
         d->values[0] = sampler;
         d->type = type;
         d->n_dims = n_dims;
         memcpy(d->dims, dims, (size_t)n_dims * sizeof *dims);
         return DNN_SUCCESS;
     })
