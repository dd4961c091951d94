/* SPDX-License-Identifier: MIT */
/* What the files of the pretended cuDNN share: statuses, handles and descriptors, with the values
 * of cuDNN's public interface (version 9). Nothing here computes. */
#ifndef MT_CUDA_DNN_DNN_H
#define MT_CUDA_DNN_DNN_H

#include <stddef.h>
#include <stdint.h>

#include "pretend/cuda/pretend_cuda.h"

enum pretend_dnn_status {
    DNN_SUCCESS = 0,
    DNN_NOT_INITIALIZED = 1001,
    DNN_BAD_PARAM = 2000,
    DNN_NULL_POINTER = 2002,
    DNN_NOT_FINALIZED = 2004,
    DNN_OUT_OF_BOUND = 2005,
    DNN_ATTRIBUTE_TYPE = 2010,
    DNN_NOT_SUPPORTED = 3000,
    DNN_HOST_ALLOCATION_FAILED = 4003
};

struct pretend_dnn_handle {
    CUstream stream;
    CUdevice device; /* that was current when it was made */
};

/* Descriptors of the older interface. What a setter takes lies in the order of its arguments. */
enum pretend_dnn_kind {
    DNN_TENSOR = 1,
    DNN_FILTER,
    DNN_CONVOLUTION,
    DNN_ACTIVATION,
    DNN_POOLING,
    DNN_LRN,
    DNN_DROPOUT,
    DNN_OP_TENSOR,
    DNN_REDUCE_TENSOR,
    DNN_SPATIAL_TRANSFORMER,
    DNN_TENSOR_TRANSFORM,
    DNN_CTC_LOSS,
    DNN_RNN,
    DNN_RNN_DATA
};

#define DNN_DIMS_MAX   8
#define DNN_VALUES_MAX 16

struct pretend_dnn_descriptor {
    enum pretend_dnn_kind kind;
    int type;   /* of data */
    int format; /* of a filter */
    int n_dims;
    int dims[DNN_DIMS_MAX];
    int strides[DNN_DIMS_MAX];
    int dilations[DNN_DIMS_MAX];
    int values[DNN_VALUES_MAX];
    double reals[3];
    void *pointer;
    uint64_t seed;
    int *lengths; /* of sequences, owned */
};

/* The descriptor where it is one of `kind`, else NULL. */
struct pretend_dnn_descriptor *pretend_dnn_descriptor(void *descriptor, enum pretend_dnn_kind kind);

/* Bytes of an element of a data type; 0 where it is none. */
size_t pretend_dnn_element_bytes(int type);

/* Sets a tensor's dimensions, packed in their order. */
int pretend_dnn_tensor_set(struct pretend_dnn_descriptor *tensor, int type, int n_dims,
                           const int *dims);

#endif
