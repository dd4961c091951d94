/* SPDX-License-Identifier: MIT */
/* Nodes of a graph by one structure for all kinds. Both interfaces lay it out alike, but for what a
 * kernel is, what a box to copy is, and that the driver wants the context with some. */
#include <string.h>

#include "driver_calls.h"
#include "runtime.h"

enum { NODE_KERNEL, NODE_COPY, NODE_SET, NODE_CONDITIONAL = 13 };

struct node {
    int type;
    int reserved[3];
    union {
        char bytes[232];
        struct cudaKernelNodeParams kernel;
        CUDA_KERNEL_NODE_PARAMS driver_kernel;
        struct {
            int flags;
            int reserved;
            CUcontext context;
            union {
                struct cudaMemcpy3DParms box;
                CUDA_MEMCPY3D driver_box;
            } it;
        } copy;
        struct {
            CUDA_MEMSET_NODE_PARAMS it;
            CUcontext context;
        } set;
        struct {
            uint64_t handle;
            int type;
            unsigned size;
            CUgraph *graphs;
            CUcontext context;
        } conditional;
    } of;
    long long reserved_too;
};

int cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges,
                      size_t n_after, struct node *parameters);
int cuGraphNodeSetParams(CUgraphNode node, struct node *parameters);
int cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, struct node *parameters);

/* The node in the driver's words; the calling thread has a context afterwards. */
static int convert(const struct node *asked, struct node *out)
{
    CUcontext context = NULL;
    int result = asked ? runtime_enter() : cudaErrorInvalidValue;
    if (result == cudaSuccess)
        result = cuCtxGetCurrent(&context);
    if (result != cudaSuccess)
        return result;
    *out = *asked;
    switch (asked->type) {
    case NODE_KERNEL:
        return runtime_kernel_node(&asked->of.kernel, &out->of.driver_kernel);
    case NODE_COPY:
        out->of.copy.context = context;
        return runtime_box(&asked->of.copy.it.box, &out->of.copy.it.driver_box);
    case NODE_SET:
        out->of.set.context = context;
        return cudaSuccess;
    case NODE_CONDITIONAL:
        out->of.conditional.context = context;
        return cudaSuccess;
    default:
        return cudaSuccess;
    }
}

/* What the driver answers in the structure: memory of an allocation, graphs of a condition. */
static void answer(const struct node *converted, struct node *asked)
{
    if (asked->type > NODE_SET)
        memcpy(asked->of.bytes, converted->of.bytes, sizeof asked->of.bytes);
}

static int add(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges,
               size_t n_after, struct node *asked)
{
    struct node converted;
    int result = convert(asked, &converted);
    if (result == cudaSuccess)
        result = cuGraphAddNode_v2(node, graph, after, edges, n_after, &converted);
    if (result == cudaSuccess)
        answer(&converted, asked);
    return result;
}

#if RUNTIME_VERSION < 13000
EXPORTED(cudaGraphAddNode, (CUgraphNode * node, CUgraph graph, const CUgraphNode *after,
                            size_t n_after, struct node *asked))
{
    return runtime_note(add(node, graph, after, NULL, n_after, asked));
}

EXPORTED(cudaGraphAddNode_v2, (CUgraphNode * node, CUgraph graph, const CUgraphNode *after,
                               const void *edges, size_t n_after, struct node *asked))
{
    return runtime_note(add(node, graph, after, edges, n_after, asked));
}
#else
EXPORTED(cudaGraphAddNode, (CUgraphNode * node, CUgraph graph, const CUgraphNode *after,
                            const void *edges, size_t n_after, struct node *asked))
{
    return runtime_note(add(node, graph, after, edges, n_after, asked));
}
#endif

EXPORTED(cudaGraphNodeSetParams, (CUgraphNode node, struct node *asked))
{
    struct node converted;
    int result = convert(asked, &converted);
    return runtime_note(result != cudaSuccess ? result : cuGraphNodeSetParams(node, &converted));
}

EXPORTED(cudaGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, struct node *asked))
{
    struct node converted;
    int result = convert(asked, &converted);
    return runtime_note(result != cudaSuccess ? result
                                              : cuGraphExecNodeSetParams(exec, node, &converted));
}
