/* SPDX-License-Identifier: MIT */
/* Nodes of graphs whose parameters the two interfaces spell differently: kernels are host functions
 * here, copies are boxes or told in one line. */
#include "driver_calls.h"
#include "runtime.h"

#if RUNTIME_VERSION < 13000
#define NEWER(name) name##_v2
#else
#define NEWER(name) name
#endif

int cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n_after,
                         const CUDA_MEMCPY3D *copy, CUcontext context);
int cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *copy);
int cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                                   CUcontext context);
int cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n_after,
                         const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context);
int cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *set);
int cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set);
int cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                   const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context);
int cuGraphConditionalHandleCreate(uint64_t *handle, CUgraph graph, CUcontext context,
                                   unsigned value, unsigned flags);

/* Enters, and finds the context that the driver wants with it. */
static int enter(CUcontext *context)
{
    int result = runtime_enter();
    return result == cudaSuccess ? cuCtxGetCurrent(context) : result;
}

/* Kernels. */

int runtime_kernel_node(const struct cudaKernelNodeParams *asked, CUDA_KERNEL_NODE_PARAMS *out)
{
    if (!asked)
        return cudaErrorInvalidValue;
    *out = (CUDA_KERNEL_NODE_PARAMS){
        .gridDimX = asked->gridDim.x,
        .gridDimY = asked->gridDim.y,
        .gridDimZ = asked->gridDim.z,
        .blockDimX = asked->blockDim.x,
        .blockDimY = asked->blockDim.y,
        .blockDimZ = asked->blockDim.z,
        .sharedMemBytes = asked->sharedMemBytes,
        .kernelParams = asked->kernelParams,
        .extra = asked->extra,
    };
    int result = runtime_enter();
    return result == cudaSuccess ? runtime_function(asked->func, &out->func) : result;
}

EXPORTED(cudaGraphAddKernelNode, (CUgraphNode * node, CUgraph graph, const CUgraphNode *after,
                                  size_t n_after, const struct cudaKernelNodeParams *asked))
{
    CUDA_KERNEL_NODE_PARAMS kernel;
    int result = runtime_kernel_node(asked, &kernel);
    if (result == cudaSuccess)
        result = cuGraphAddKernelNode_v2(node, graph, after, n_after, &kernel);
    return runtime_note(result);
}

EXPORTED(cudaGraphKernelNodeSetParams, (CUgraphNode node, const struct cudaKernelNodeParams *asked))
{
    CUDA_KERNEL_NODE_PARAMS kernel;
    int result = runtime_kernel_node(asked, &kernel);
    if (result == cudaSuccess)
        result = cuGraphKernelNodeSetParams_v2(node, &kernel);
    return runtime_note(result);
}

EXPORTED(cudaGraphExecKernelNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const struct cudaKernelNodeParams *asked))
{
    CUDA_KERNEL_NODE_PARAMS kernel;
    int result = runtime_kernel_node(asked, &kernel);
    if (result == cudaSuccess)
        result = cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel);
    return runtime_note(result);
}

EXPORTED(cudaGraphKernelNodeGetParams, (CUgraphNode node, struct cudaKernelNodeParams *out))
{
    CUDA_KERNEL_NODE_PARAMS kernel = {0};
    int result = runtime_enter();
    if (result == cudaSuccess)
        result = out ? cuGraphKernelNodeGetParams_v2(node, &kernel) : cudaErrorInvalidValue;
    if (result != cudaSuccess)
        return runtime_note(result);
    *out = (struct cudaKernelNodeParams){
        runtime_host_of(kernel.func),
        {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ},
        {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ},
        kernel.sharedMemBytes,
        kernel.kernelParams,
        kernel.extra,
    };
    return cudaSuccess;
}

/* Copies. */

static int add_copy(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n_after,
                    const CUDA_MEMCPY3D *copy)
{
    CUcontext context = NULL;
    int result = enter(&context);
    return result != cudaSuccess ? result
                                 : cuGraphAddMemcpyNode(node, graph, after, n_after, copy, context);
}

static int set_copy(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
    CUcontext context = NULL;
    int result = enter(&context);
    return result != cudaSuccess ? result
                                 : cuGraphExecMemcpyNodeSetParams(exec, node, copy, context);
}

static CUDA_MEMCPY3D line(void *to, const void *from, size_t bytes)
{
    return (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = (CUdeviceptr)(uintptr_t)from,
        .srcPitch = bytes,
        .srcHeight = 1,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = (CUdeviceptr)(uintptr_t)to,
        .dstPitch = bytes,
        .dstHeight = 1,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1,
    };
}

EXPORTED(cudaGraphAddMemcpyNode, (CUgraphNode * node, CUgraph graph, const CUgraphNode *after,
                                  size_t n_after, const struct cudaMemcpy3DParms *asked))
{
    CUDA_MEMCPY3D copy;
    int result = runtime_box(asked, &copy);
    return runtime_note(result != cudaSuccess ? result
                                              : add_copy(node, graph, after, n_after, &copy));
}

EXPORTED(cudaGraphAddMemcpyNode1D,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t n_after, void *to,
          const void *from, size_t bytes, int kind))
{
    CUDA_MEMCPY3D copy = line(to, from, bytes);
    if (kind < 0 || kind > cudaMemcpyDefault)
        return runtime_note(cudaErrorInvalidMemcpyDirection);
    return runtime_note(add_copy(node, graph, after, n_after, &copy));
}

EXPORTED(cudaGraphMemcpyNodeSetParams, (CUgraphNode node, const struct cudaMemcpy3DParms *asked))
{
    CUDA_MEMCPY3D copy;
    int result = runtime_box(asked, &copy);
    if (result == cudaSuccess)
        result = runtime_enter();
    return runtime_note(result != cudaSuccess ? result : cuGraphMemcpyNodeSetParams(node, &copy));
}

EXPORTED(cudaGraphMemcpyNodeSetParams1D,
         (CUgraphNode node, void *to, const void *from, size_t bytes, int kind))
{
    CUDA_MEMCPY3D copy = line(to, from, bytes);
    int result =
        kind < 0 || kind > cudaMemcpyDefault ? cudaErrorInvalidMemcpyDirection : runtime_enter();
    return runtime_note(result != cudaSuccess ? result : cuGraphMemcpyNodeSetParams(node, &copy));
}

EXPORTED(cudaGraphExecMemcpyNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const struct cudaMemcpy3DParms *asked))
{
    CUDA_MEMCPY3D copy;
    int result = runtime_box(asked, &copy);
    return runtime_note(result != cudaSuccess ? result : set_copy(exec, node, &copy));
}

EXPORTED(cudaGraphExecMemcpyNodeSetParams1D,
         (CUgraphExec exec, CUgraphNode node, void *to, const void *from, size_t bytes, int kind))
{
    CUDA_MEMCPY3D copy = line(to, from, bytes);
    if (kind < 0 || kind > cudaMemcpyDefault)
        return runtime_note(cudaErrorInvalidMemcpyDirection);
    return runtime_note(set_copy(exec, node, &copy));
}

/* Sets. */

static CUDA_MEMSET_NODE_PARAMS set_in_driver(const struct cudaMemsetParams *asked)
{
    return (CUDA_MEMSET_NODE_PARAMS){(CUdeviceptr)(uintptr_t)asked->dst,
                                     asked->pitch,
                                     asked->value,
                                     asked->elementSize,
                                     asked->width,
                                     asked->height};
}

EXPORTED(cudaGraphAddMemsetNode, (CUgraphNode * node, CUgraph graph, const CUgraphNode *after,
                                  size_t n_after, const struct cudaMemsetParams *asked))
{
    CUcontext context = NULL;
    int result = asked ? enter(&context) : cudaErrorInvalidValue;
    if (result != cudaSuccess)
        return runtime_note(result);
    CUDA_MEMSET_NODE_PARAMS set = set_in_driver(asked);
    return runtime_note(cuGraphAddMemsetNode(node, graph, after, n_after, &set, context));
}

EXPORTED(cudaGraphMemsetNodeGetParams, (CUgraphNode node, struct cudaMemsetParams *out))
{
    CUDA_MEMSET_NODE_PARAMS set = {0};
    int result = out ? runtime_enter() : cudaErrorInvalidValue;
    if (result == cudaSuccess)
        result = cuGraphMemsetNodeGetParams(node, &set);
    if (result == cudaSuccess)
        *out = (struct cudaMemsetParams){(void *)(uintptr_t)set.dst,
                                         set.pitch,
                                         set.value,
                                         set.elementSize,
                                         set.width,
                                         set.height};
    return runtime_note(result);
}

EXPORTED(cudaGraphMemsetNodeSetParams, (CUgraphNode node, const struct cudaMemsetParams *asked))
{
    int result = asked ? runtime_enter() : cudaErrorInvalidValue;
    if (result != cudaSuccess)
        return runtime_note(result);
    CUDA_MEMSET_NODE_PARAMS set = set_in_driver(asked);
    return runtime_note(cuGraphMemsetNodeSetParams(node, &set));
}

EXPORTED(cudaGraphExecMemsetNodeSetParams,
         (CUgraphExec exec, CUgraphNode node, const struct cudaMemsetParams *asked))
{
    CUcontext context = NULL;
    int result = asked ? enter(&context) : cudaErrorInvalidValue;
    if (result != cudaSuccess)
        return runtime_note(result);
    CUDA_MEMSET_NODE_PARAMS set = set_in_driver(asked);
    return runtime_note(cuGraphExecMemsetNodeSetParams(exec, node, &set, context));
}

EXPORTED(cudaGraphConditionalHandleCreate,
         (uint64_t * handle, CUgraph graph, unsigned value, unsigned flags))
{
    CUcontext context = NULL;
    int result = enter(&context);
    if (result == cudaSuccess)
        result = cuGraphConditionalHandleCreate(handle, graph, context, value, flags);
    return runtime_note(result);
}
