/* SPDX-License-Identifier: MIT */
/* Recurrent networks of cuDNN: descriptors, where each matrix lies in the weights, and what a pass
 * keeps. The weights are all matrices of all layers, then all biases, without gaps. */
#include <stdlib.h>
#include <string.h>

#include "dnn.h"
#include "pretend/cuda/call.h"
#include "pretend/cuda/unknown.h"

typedef struct pretend_dnn_descriptor descriptor;

/* The order of cudnnSetRNNDescriptor_v8's integers. */
enum {
    ALGORITHM,
    CELL,
    BIAS,
    DIRECTION,
    INPUT_MODE,
    DATA_TYPE,
    PRECISION,
    MATH,
    INPUT,
    HIDDEN,
    PROJECTION,
    LAYERS,
    FLAGS,
    N_VALUES
};
enum { CELL_RELU, CELL_TANH, CELL_LSTM, CELL_GRU };
enum { BIAS_NONE, BIAS_INPUT, BIAS_BOTH, BIAS_RECURRENT };
enum { CLIP_LOW, CLIP_HIGH };
enum { CLIP_MODE = N_VALUES, CLIP_NAN };

CALL(cudnnSetRNNDescriptor_v8,
     (void *handle, int algorithm, int cell, int bias, int direction, int input_mode, int type,
      int precision, int math, int input, int hidden, int projection, int layers, void *dropout,
      unsigned flags),
     {
         descriptor *d = pretend_dnn_descriptor(handle, DNN_RNN);
         const int values[N_VALUES] = {algorithm,  cell,      bias,      direction, input_mode,
                                       type,       precision, math,      input,     hidden,
                                       projection, layers,    (int)flags};
         if (!d || input < 1 || hidden < 1 || layers < 1 || projection < 0 || projection > hidden ||
             cell < CELL_RELU || cell > CELL_GRU || bias < BIAS_NONE || bias > BIAS_RECURRENT ||
             pretend_dnn_element_bytes(type) == 0)
             return DNN_BAD_PARAM;
         memcpy(d->values, values, sizeof values);
         d->pointer = dropout;
         return DNN_SUCCESS;
     })
CALL(cudnnGetRNNDescriptor_v8,
     (void *handle, int *algorithm, int *cell, int *bias, int *direction, int *input_mode,
      int *type, int *precision, int *math, int *input, int *hidden, int *projection, int *layers,
      void **dropout, unsigned *flags),
     {
         const descriptor *d = pretend_dnn_descriptor(handle, DNN_RNN);
         int *const values[N_VALUES] = {algorithm,  cell,      bias,        direction, input_mode,
                                        type,       precision, math,        input,     hidden,
                                        projection, layers,    (int *)flags};
         int i;
         if (!d)
             return DNN_BAD_PARAM;
         for (i = 0; i < N_VALUES; i++)
             if (values[i])
                 *values[i] = d->values[i];
         if (dropout)
             *dropout = d->pointer;
         return DNN_SUCCESS;
     })
CALL(cudnnRNNSetClip_v8, (void *handle, int mode, int nan, double low, double high), {
    descriptor *d = pretend_dnn_descriptor(handle, DNN_RNN);
    if (!d)
        return DNN_BAD_PARAM;
    d->values[CLIP_MODE] = mode;
    d->values[CLIP_NAN] = nan;
    d->reals[CLIP_LOW] = low;
    d->reals[CLIP_HIGH] = high;
    return DNN_SUCCESS;
})
CALL(cudnnRNNSetClip_v9, (void *handle, int mode, double low, double high),
     return cudnnRNNSetClip_v8(handle, mode, 0, low, high);)
CALL(cudnnRNNGetClip_v8, (void *handle, int *mode, int *nan, double *low, double *high), {
    const descriptor *d = pretend_dnn_descriptor(handle, DNN_RNN);
    if (!d || !mode || !low || !high)
        return DNN_BAD_PARAM;
    *mode = d->values[CLIP_MODE];
    *low = d->reals[CLIP_LOW];
    *high = d->reals[CLIP_HIGH];
    if (nan)
        *nan = d->values[CLIP_NAN];
    return DNN_SUCCESS;
})
CALL(cudnnRNNGetClip_v9, (void *handle, int *mode, double *low, double *high),
     return cudnnRNNGetClip_v8(handle, mode, NULL, low, high);)
CALL(cudnnBuildRNNDynamic, (void *handle, void *rnn, int batch),
     return handle && rnn && batch > 0 ? DNN_SUCCESS : DNN_BAD_PARAM;)

static int n_gates(const descriptor *d)
{
    static const int gates[] = {1, 1, 4, 3};
    return gates[d->values[CELL]];
}

static int n_directions(const descriptor *d)
{
    return d->values[DIRECTION] != 0 ? 2 : 1;
}

/* Elements of a step's output of one direction. */
static int output_size(const descriptor *d)
{
    return d->values[PROJECTION] != 0 ? d->values[PROJECTION] : d->values[HIDDEN];
}

/* Columns of the input matrices of a pseudo-layer: layers and, within each, directions. */
static int input_size(const descriptor *d, int layer)
{
    return layer < n_directions(d) ? d->values[INPUT] : output_size(d) * n_directions(d);
}

static int n_biases(const descriptor *d)
{
    return d->values[BIAS] == BIAS_BOTH ? 2 : d->values[BIAS] != BIAS_NONE;
}

static size_t matrix_elements(const descriptor *d, int layer)
{
    size_t hidden = (size_t)d->values[HIDDEN];
    size_t both = (size_t)input_size(d, layer) + (size_t)output_size(d);
    return (size_t)n_gates(d) * hidden * both + (size_t)d->values[PROJECTION] * hidden;
}

static size_t bias_elements(const descriptor *d)
{
    return (size_t)n_gates(d) * (size_t)n_biases(d) * (size_t)d->values[HIDDEN];
}

/* Elements before a pseudo-layer's matrices; with the number of all, before the biases. */
static size_t elements_before(const descriptor *d, int layer)
{
    size_t elements = 0;
    int i;
    for (i = 0; i < layer; i++)
        elements += matrix_elements(d, i);
    return elements;
}

static int n_pseudo_layers(const descriptor *d)
{
    return d->values[LAYERS] * n_directions(d);
}

CALL(cudnnGetRNNWeightSpaceSize, (void *handle, void *rnn, size_t *bytes), {
    const descriptor *d = pretend_dnn_descriptor(rnn, DNN_RNN);
    size_t elements;
    if (!handle || !d || !bytes || d->values[LAYERS] == 0)
        return DNN_BAD_PARAM;
    elements =
        elements_before(d, n_pseudo_layers(d)) + (size_t)n_pseudo_layers(d) * bias_elements(d);
    *bytes = elements * pretend_dnn_element_bytes(d->values[DATA_TYPE]);
    return DNN_SUCCESS;
})

/* One matrix or bias within the weights; no rows where there is none. */
struct part {
    int rows, columns;
    size_t first;
};

static struct part matrix_part(const descriptor *d, int layer, int id)
{
    int gates = n_gates(d);
    int hidden = d->values[HIDDEN];
    int input = input_size(d, layer);
    size_t before = elements_before(d, layer);
    size_t inputs = (size_t)gates * (size_t)hidden * (size_t)input;
    size_t recurrents = (size_t)gates * (size_t)hidden * (size_t)output_size(d);
    if (id < gates)
        return (struct part){hidden, input, before + (size_t)id * (size_t)hidden * (size_t)input};
    if (id < 2 * gates) {
        return (struct part){hidden, output_size(d),
                             before + inputs +
                                 (size_t)(id - gates) * (size_t)hidden * (size_t)output_size(d)};
    }
    return (struct part){d->values[PROJECTION], hidden, before + inputs + recurrents};
}

static struct part bias_part(const descriptor *d, int layer, int id)
{
    int gates = n_gates(d);
    int row = id;
    if (id >= 2 * gates || n_biases(d) == 0 || (d->values[BIAS] == BIAS_INPUT && id >= gates) ||
        (d->values[BIAS] == BIAS_RECURRENT && id < gates))
        return (struct part){0, 0, 0};
    if (d->values[BIAS] == BIAS_RECURRENT)
        row -= gates;
    return (struct part){d->values[HIDDEN], 1,
                         elements_before(d, n_pseudo_layers(d)) + (size_t)layer * bias_elements(d) +
                             (size_t)row * (size_t)d->values[HIDDEN]};
}

static void tell_part(const descriptor *d, struct part part, const void *weights, void *tensor,
                      void **address)
{
    descriptor *into = pretend_dnn_descriptor(tensor, DNN_TENSOR);
    const int dims[] = {1, part.rows, part.columns};
    if (into && part.rows > 0)
        pretend_dnn_tensor_set(into, d->values[DATA_TYPE], 3, dims);
    else if (into)
        into->n_dims = 0;
    if (address) {
        *address = NULL;
        if (part.rows > 0 && weights) {
            *address = (char *)(uintptr_t)weights +
                       part.first * pretend_dnn_element_bytes(d->values[DATA_TYPE]);
        }
    }
}

CALL(cudnnGetRNNWeightParams,
     (void *handle, void *rnn, int layer, size_t bytes, const void *weights, int id, void *matrix,
      void **matrix_at, void *bias, void **bias_at),
     {
         const descriptor *d = pretend_dnn_descriptor(rnn, DNN_RNN);
         (void)bytes;
         if (!handle || !d || layer < 0 || layer >= n_pseudo_layers(d) || id < 0 ||
             id > 2 * n_gates(d))
             return DNN_BAD_PARAM;
         tell_part(d, matrix_part(d, layer, id), weights, matrix, matrix_at);
         tell_part(d, bias_part(d, layer, id), weights, bias, bias_at);
         return DNN_SUCCESS;
     })

/* Data: layout, longest sequence, batch, size of a vector in `values`. */
enum { DATA_LAYOUT, DATA_LONGEST, DATA_BATCH, DATA_VECTOR };

CALL(cudnnSetRNNDataDescriptor,
     (void *handle, int type, int layout, int longest, int batch, int vector, const int *lengths,
      void *padding),
     {
         descriptor *d = pretend_dnn_descriptor(handle, DNN_RNN_DATA);
         int *kept;
         (void)padding;
         if (!d || longest < 1 || batch < 1 || vector < 1 || !lengths)
             return DNN_BAD_PARAM;
         kept = malloc((size_t)batch * sizeof *kept);
         if (!kept)
             return DNN_HOST_ALLOCATION_FAILED;
         memcpy(kept, lengths, (size_t)batch * sizeof *kept);
         free(d->lengths);
         d->lengths = kept;
         d->type = type;
         memcpy(d->values, (int[]){layout, longest, batch, vector}, 4 * sizeof(int));
         return DNN_SUCCESS;
     })
CALL(cudnnGetRNNDataDescriptor,
     (void *handle, int *type, int *layout, int *longest, int *batch, int *vector, int wanted,
      int *lengths, void *padding),
     {
         const descriptor *d = pretend_dnn_descriptor(handle, DNN_RNN_DATA);
         (void)padding;
         if (!d || !type || !layout || !longest || !batch || !vector)
             return DNN_BAD_PARAM;
         *type = d->type;
         *layout = d->values[DATA_LAYOUT];
         *longest = d->values[DATA_LONGEST];
         *batch = d->values[DATA_BATCH];
         *vector = d->values[DATA_VECTOR];
         if (lengths && d->lengths && wanted > 0)
             memcpy(lengths, d->lengths,
                    (size_t)(wanted < *batch ? wanted : *batch) * sizeof *lengths);
         return DNN_SUCCESS;
     })

/* What the backward pass cannot do without: of every step and layer the gates, a long short-term
 * memory's cells, and the outputs that the next layer read. */
static size_t kept_elements(const descriptor *d, const descriptor *data)
{
    size_t steps = (size_t)data->values[DATA_LONGEST] * (size_t)data->values[DATA_BATCH];
    size_t layers = (size_t)n_pseudo_layers(d);
    size_t cells = d->values[CELL] == CELL_LSTM ? 1 : 0;
    size_t between = (layers - (size_t)n_directions(d)) * (size_t)output_size(d);
    return steps * (layers * ((size_t)n_gates(d) + cells) * (size_t)d->values[HIDDEN] + between);
}

CALL(cudnnGetRNNTempSpaceSizes,
     (void *handle, void *rnn, int is_training, void *data, size_t *workspace, size_t *reserve), {
         const descriptor *d = pretend_dnn_descriptor(rnn, DNN_RNN);
         const descriptor *x = pretend_dnn_descriptor(data, DNN_RNN_DATA);
         static int told[2];
         if (!handle || !d || !x)
             return DNN_BAD_PARAM;
         if (workspace) {
             *workspace = 0;
             pretend_unknown("cudnnGetRNNTempSpaceSizes", &told[0]);
         }
         if (reserve) {
             *reserve = 0;
             if (is_training) {
                 *reserve = kept_elements(d, x) * pretend_dnn_element_bytes(d->values[DATA_TYPE]);
                 pretend_at_least("cudnnGetRNNTempSpaceSizes", &told[1]);
             }
         }
         return DNN_SUCCESS;
     })
