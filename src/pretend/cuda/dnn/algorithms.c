/* SPDX-License-Identifier: MIT */
/* Algorithms of convolutions by the older interface, and the sizes of their workspaces. One
 * algorithm is offered, deterministic and without a workspace, so that no timing decides. */
#include <string.h>

#include "dnn.h"
#include "pretend/cuda/call.h"
#include "pretend/cuda/unknown.h"

/* What cudnnGetConvolution…Algorithm and cudnnFindConvolution…Algorithm fill in. */
struct performance {
    int algorithm;
    int status;
    float time_ms;
    size_t memory;
    int determinism; /* 1: deterministic */
    int math;
    int reserved[3];
};

/* That the documentation gives no workspace: implicit GEMM, and for the gradients the first. */
enum { FORWARD = 0, BACKWARD_DATA = 1, BACKWARD_FILTER = 1 };

static int offer(int algorithm, int wanted, int *returned, struct performance *results,
                 const char *name, int *told)
{
    if (!returned || !results || wanted < 1)
        return DNN_BAD_PARAM;
    memset(results, 0, sizeof *results);
    results->algorithm = algorithm;
    results->determinism = 1;
    *returned = 1;
    pretend_unknown(name, told);
    return DNN_SUCCESS;
}

#define OFFERS(direction, algorithm)                                                               \
    CALL(cudnnGetConvolution##direction##AlgorithmMaxCount, (void *handle, int *count), {          \
        if (!handle || !count)                                                                     \
            return DNN_BAD_PARAM;                                                                  \
        *count = 1;                                                                                \
        return DNN_SUCCESS;                                                                        \
    })                                                                                             \
    CALL(cudnnGetConvolution##direction##Algorithm_v7,                                             \
         (void *handle, void *a, void *b, void *c, void *d, int wanted, int *returned,             \
          struct performance *results),                                                            \
         {                                                                                         \
             static int told;                                                                      \
             if (!handle || !a || !b || !c || !d)                                                  \
                 return DNN_BAD_PARAM;                                                             \
             return offer(algorithm, wanted, returned, results,                                    \
                          "cudnnGetConvolution" #direction "Algorithm", &told);                    \
         })                                                                                        \
    CALL(cudnnFindConvolution##direction##Algorithm,                                               \
         (void *handle, void *a, void *b, void *c, void *d, int wanted, int *returned,             \
          struct performance *results),                                                            \
         return cudnnGetConvolution##direction##Algorithm_v7(handle, a, b, c, d, wanted, returned, \
                                                             results);)                            \
    CALL(cudnnFindConvolution##direction##AlgorithmEx,                                             \
         (void *handle, void *a, void *at_a, void *b, void *at_b, void *c, void *d, void *at_d,    \
          int wanted, int *returned, struct performance *results, void *workspace, size_t bytes),  \
         {                                                                                         \
             (void)at_a;                                                                           \
             (void)at_b;                                                                           \
             (void)at_d;                                                                           \
             (void)workspace;                                                                      \
             (void)bytes;                                                                          \
             return cudnnGetConvolution##direction##Algorithm_v7(handle, a, b, c, d, wanted,       \
                                                                 returned, results);               \
         })                                                                                        \
    CALL(cudnnGetConvolution##direction##WorkspaceSize,                                            \
         (void *handle, void *a, void *b, void *c, void *d, int chosen, size_t *bytes), {          \
             static int told;                                                                      \
             (void)chosen;                                                                         \
             if (!handle || !a || !b || !c || !d || !bytes)                                        \
                 return DNN_BAD_PARAM;                                                             \
             *bytes = 0;                                                                           \
             pretend_unknown("cudnnGetConvolution" #direction "WorkspaceSize", &told);             \
             return DNN_SUCCESS;                                                                   \
         })
OFFERS(Forward, FORWARD)
OFFERS(BackwardData, BACKWARD_DATA)
OFFERS(BackwardFilter, BACKWARD_FILTER)

/* Sizes that are not documented: the last argument but those behind it is where they go. */
static int unknown_size(const void *handle, size_t *bytes, const char *name, int *told)
{
    if (!handle || !bytes)
        return DNN_BAD_PARAM;
    *bytes = 0;
    pretend_unknown(name, told);
    return DNN_SUCCESS;
}

#define UNKNOWN(name, arguments)                                                                   \
    CALL(name, arguments, {                                                                        \
        static int told;                                                                           \
        return unknown_size(handle, bytes, #name, &told);                                          \
    })
#define IGNORED __attribute__((unused))
#define A       IGNORED void *a
#define B       IGNORED void *b
#define C       IGNORED void *c
#define D       IGNORED void *d
#define E       IGNORED void *e
#define F       IGNORED void *f

UNKNOWN(cudnnGetReductionIndicesSize, (void *handle, A, B, C, size_t *bytes))
UNKNOWN(cudnnGetReductionWorkspaceSize, (void *handle, A, B, C, size_t *bytes))
UNKNOWN(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize,
        (void *handle, IGNORED int mode, IGNORED int ops, A, B, C, D, E, size_t *bytes))
UNKNOWN(cudnnGetBatchNormalizationBackwardExWorkspaceSize,
        (void *handle, IGNORED int mode, IGNORED int ops, A, B, C, D, E, F,
         IGNORED void *activation, size_t *bytes))
UNKNOWN(cudnnGetBatchNormalizationTrainingExReserveSpaceSize,
        (void *handle, IGNORED int mode, IGNORED int ops, A, B, size_t *bytes))
UNKNOWN(cudnnGetNormalizationForwardTrainingWorkspaceSize,
        (void *handle, IGNORED int mode, IGNORED int ops, IGNORED int algorithm, A, B, C, D, E, F,
         size_t *bytes, IGNORED int groups))
UNKNOWN(cudnnGetNormalizationBackwardWorkspaceSize,
        (void *handle, IGNORED int mode, IGNORED int ops, IGNORED int algorithm, A, B, C, D, E, F,
         IGNORED void *activation, IGNORED void *mean, size_t *bytes, IGNORED int groups))
UNKNOWN(cudnnGetNormalizationTrainingReserveSpaceSize,
        (void *handle, IGNORED int mode, IGNORED int ops, IGNORED int algorithm, A, B,
         size_t *bytes, IGNORED int groups))

enum { CTC_TYPE, CTC_NORMAL, CTC_GRADIENT, CTC_LONGEST };

/* What the recursion over the labels cannot do without: for each step, sample and place between
 * the labels a forward and a backward probability in single precision. */
static size_t ctc_bytes(const struct pretend_dnn_descriptor *probabilities, int longest)
{
    return (size_t)probabilities->dims[0] * (size_t)probabilities->dims[1] *
           (2 * (size_t)longest + 1) * 2 * sizeof(float);
}

static int tell_ctc(void *probabilities, int longest, size_t *bytes, int *told)
{
    const struct pretend_dnn_descriptor *p = pretend_dnn_descriptor(probabilities, DNN_TENSOR);
    if (!p || p->n_dims < 2 || !bytes || longest < 0)
        return DNN_BAD_PARAM;
    *bytes = ctc_bytes(p, longest);
    pretend_at_least("cudnnGetCTCLossWorkspaceSize", told);
    return DNN_SUCCESS;
}

CALL(cudnnGetCTCLossWorkspaceSize,
     (void *handle, void *probabilities, void *gradients, const int *labels, const int *lengths,
      const int *inputs, int algorithm, void *loss, size_t *bytes),
     {
         const struct pretend_dnn_descriptor *p = pretend_dnn_descriptor(probabilities, DNN_TENSOR);
         static int told;
         int longest = 0;
         int i;
         (void)gradients;
         (void)labels;
         (void)inputs;
         (void)algorithm;
         if (!handle || !loss || !lengths || !p || p->n_dims < 2)
             return DNN_BAD_PARAM;
         for (i = 0; i < p->dims[1]; i++)
             longest = lengths[i] > longest ? lengths[i] : longest;
         return tell_ctc(probabilities, longest, bytes, &told);
     })
CALL(cudnnGetCTCLossWorkspaceSize_v8,
     (void *handle, int algorithm, void *loss, void *probabilities, void *gradients, size_t *bytes),
     {
         const struct pretend_dnn_descriptor *d = pretend_dnn_descriptor(loss, DNN_CTC_LOSS);
         static int told;
         (void)algorithm;
         (void)gradients;
         if (!handle || !d)
             return DNN_BAD_PARAM;
         return tell_ctc(probabilities, d->values[CTC_LONGEST], bytes, &told);
     })
