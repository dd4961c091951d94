/* SPDX-License-Identifier: MIT */
/* Nodes of each type: adding them, their parameters, and the same in an executable graph. */
#include "pretend/cuda/driver/work.h"

#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"

#define COPY_BYTES         200 /* of the parameters of a copy, as cuMemcpy3D takes them */
#define COPY_OFFSET        16  /* of these in CUgraphNodeParams */
#define HOST_BYTES         sizeof(CUDA_HOST_NODE_PARAMS)
#define SET_BYTES          sizeof(CUDA_MEMSET_NODE_PARAMS)
#define KERNEL_BYTES       sizeof(CUDA_KERNEL_NODE_PARAMS)
#define KERNEL_V1_BYTES    CUDA_KERNEL_NODE_PARAMS_V1_BYTES
#define HANDLE_BYTES       sizeof(void *)
#define BATCH_BYTES        32
#define LAUNCH_COOPERATIVE CU_LAUNCH_ATTRIBUTE_COOPERATIVE

/* Only the addresses of a kernel's arguments are known here, and not for how long they are good. */
static void set_params(struct pretend_graph_node *node, const void *params, size_t bytes)
{
    memset(&node->params, 0, sizeof node->params);
    memcpy(&node->params, params, bytes);
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        node->params.kernel.kernelParams = NULL;
        node->params.kernel.extra = NULL;
    }
}

/* A launch would run into a function or an event that is none. */
static int are_sound(CUgraphNodeType type, const void *params)
{
    CUDA_HOST_NODE_PARAMS host;
    void *event;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_HOST:
        memcpy(&host, params, sizeof host);
        return host.fn != NULL;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        memcpy(&event, params, sizeof event);
        return pretend_is(PRETEND_A_EVENT, event);
    default:
        return 1;
    }
}

static CUresult add(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *before,
                    const CUgraphEdgeData *edges, size_t n, CUgraphNodeType type,
                    const void *params, size_t bytes)
{
    struct pretend_graph *graph = pretend_graph_of(graph_handle);
    struct pretend_graph_node *node;
    if (!handle || !graph || (n && !before) || (bytes && (!params || !are_sound(type, params))))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++)
        if (!pretend_node_of(before[i]) || pretend_node_of(before[i])->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    node = pretend_graph_add(graph, type);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes)
        set_params(node, params, bytes);
    for (size_t i = 0; i < n; i++)
        if (pretend_edges_add(&node->before, (void *)before[i], edges ? &edges[i] : NULL))
            return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = (void *)node;
    return CUDA_SUCCESS;
}

static CUresult add_locked(CUgraphNode *handle, CUgraph graph, const CUgraphNode *before, size_t n,
                           CUgraphNodeType type, const void *params, size_t bytes)
{
    pretend_lock();
    CUresult result = add(handle, graph, before, NULL, n, type, params, bytes);
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
                                              const CUgraphNode *before, size_t n,
                                              const CUDA_KERNEL_NODE_PARAMS *params)
{
    return add_locked(node, graph, before, n, CU_GRAPH_NODE_TYPE_KERNEL, params, KERNEL_BYTES);
}

PRETEND_CALL CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph,
                                           const CUgraphNode *before, size_t n, const void *params)
{
    return add_locked(node, graph, before, n, CU_GRAPH_NODE_TYPE_KERNEL, params, KERNEL_V1_BYTES);
}

PRETEND_CALL CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
                                           const CUgraphNode *before, size_t n, const void *copy,
                                           CUcontext context)
{
    (void)context;
    return add_locked(node, graph, before, n, CU_GRAPH_NODE_TYPE_MEMCPY, copy, COPY_BYTES);
}

PRETEND_CALL CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
                                           const CUgraphNode *before, size_t n,
                                           const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    (void)context;
    return add_locked(node, graph, before, n, CU_GRAPH_NODE_TYPE_MEMSET, params, SET_BYTES);
}

PRETEND_CALL CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph,
                                         const CUgraphNode *before, size_t n,
                                         const CUDA_HOST_NODE_PARAMS *params)
{
    return add_locked(node, graph, before, n, CU_GRAPH_NODE_TYPE_HOST, params, HOST_BYTES);
}

PRETEND_CALL CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph,
                                          const CUgraphNode *before, size_t n)
{
    return add_locked(node, graph, before, n, CU_GRAPH_NODE_TYPE_EMPTY, NULL, 0);
}

PRETEND_CALL CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
                                                const CUgraphNode *before, size_t n, CUevent event)
{
    return add_locked(node, graph, before, n, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &event,
                      HANDLE_BYTES);
}

PRETEND_CALL CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph,
                                              const CUgraphNode *before, size_t n, CUevent event)
{
    return add_locked(node, graph, before, n, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &event, HANDLE_BYTES);
}

PRETEND_CALL CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph,
                                               const CUgraphNode *before, size_t n,
                                               const void *params)
{
    return add_locked(node, graph, before, n, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, params, BATCH_BYTES);
}

/* With the lock held. */
static CUresult add_child(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                          const CUgraphEdgeData *edges, size_t n, CUgraph child_handle)
{
    struct pretend_graph *child = pretend_graph_of(child_handle), *copy;
    if (!child || child == pretend_graph_of(graph))
        return CUDA_ERROR_INVALID_VALUE;
    copy = pretend_graph_copy(child);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    copy->is_part = 1;
    CUresult result =
        add(node, graph, before, edges, n, CU_GRAPH_NODE_TYPE_GRAPH, &copy, HANDLE_BYTES);
    if (result != CUDA_SUCCESS)
        pretend_graph_delete(copy);
    return result;
}

PRETEND_CALL CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph,
                                               const CUgraphNode *before, size_t n, CUgraph child)
{
    pretend_lock();
    CUresult result = add_child(node, graph, before, NULL, n, child);
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *graph)
{
    const struct pretend_graph_node *node = pretend_node_of(handle);
    if (!node || !graph || node->type != CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = (void *)node->params.child;
    return CUDA_SUCCESS;
}

/* Nodes of all types by one call. */

static size_t bytes_of(CUgraphNodeType type)
{
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return KERNEL_BYTES;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return COPY_BYTES;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return SET_BYTES;
    case CU_GRAPH_NODE_TYPE_HOST:
        return HOST_BYTES;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return HANDLE_BYTES;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return BATCH_BYTES;
    default:
        return 0;
    }
}

PRETEND_CALL CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                        const CUgraphEdgeData *edges, size_t n,
                                        CUgraphNodeParams *params)
{
    CUresult result;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    const struct pretend_place_in_graph place = {node, graph, before, edges, n};
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return pretend_add_alloc_node(&place, &params->u.alloc);
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return pretend_add_free_node(&place, params->u.free);
    size_t offset = params->type == CU_GRAPH_NODE_TYPE_MEMCPY ? COPY_OFFSET : 0;
    pretend_lock();
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        result = add_child(node, graph, before, edges, n, params->u.graph);
    else if (params->type != CU_GRAPH_NODE_TYPE_EMPTY && !bytes_of(params->type))
        result = CUDA_ERROR_NOT_SUPPORTED;
    else
        result = add(node, graph, before, edges, n, params->type, params->u.bytes + offset,
                     bytes_of(params->type));
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                     size_t n, CUgraphNodeParams *params)
{
    return cuGraphAddNode_v2(node, graph, before, NULL, n, params);
}

/* Parameters. */

static CUresult get(CUgraphNode handle, CUgraphNodeType type, void *params, size_t bytes)
{
    const struct pretend_graph_node *node = pretend_node_of(handle);
    if (!node || node->type != type || !params)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(params, &node->params, bytes);
    return CUDA_SUCCESS;
}

static CUresult set(struct pretend_graph_node *node, CUgraphNodeType type, const void *params,
                    size_t bytes)
{
    if (!node || node->type != type || !params || !are_sound(type, params))
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    set_params(node, params, bytes);
    pretend_unlock();
    return CUDA_SUCCESS;
}

/* The node of an executable graph that was made from `handle`. */
static struct pretend_graph_node *in_exec(CUgraphExec exec_handle, CUgraphNode handle)
{
    const struct pretend_graph_node *node = pretend_node_of(handle);
    const struct pretend_graph_exec *exec = (void *)exec_handle;
    if (!pretend_is(PRETEND_A_GRAPH_EXEC, exec) || !node)
        return NULL;
    if (node->index < exec->graph->n && exec->graph->node[node->index]->id == node->id)
        return exec->graph->node[node->index];
    for (size_t i = 0; i < exec->graph->n; i++)
        if (exec->graph->node[i]->id == node->id)
            return exec->graph->node[i];
    return NULL;
}

/* GET(name, type, params, bytes): what a node of a type has. SET() changes it, SET_IN_EXEC() in an
 * executable graph; SET_EVENT() and SET_EVENT_IN_EXEC() do so with an event. */
#define GET(name, TYPE, type, bytes)                                                               \
    PRETEND_CALL CUresult name(CUgraphNode node, type *params)                                     \
    {                                                                                              \
        return get(node, CU_GRAPH_NODE_TYPE_##TYPE, params, bytes);                                \
    }
#define SET(name, TYPE, type, bytes)                                                               \
    PRETEND_CALL CUresult name(CUgraphNode node, const type *params)                               \
    {                                                                                              \
        return set(pretend_node_of(node), CU_GRAPH_NODE_TYPE_##TYPE, params, bytes);               \
    }
#define SET_IN_EXEC(name, TYPE, type, bytes)                                                       \
    PRETEND_CALL CUresult name(CUgraphExec exec, CUgraphNode node, const type *params)             \
    {                                                                                              \
        return set(in_exec(exec, node), CU_GRAPH_NODE_TYPE_##TYPE, params, bytes);                 \
    }
#define SET_EVENT(name, TYPE)                                                                      \
    PRETEND_CALL CUresult name(CUgraphNode node, CUevent event)                                    \
    {                                                                                              \
        return set(pretend_node_of(node), CU_GRAPH_NODE_TYPE_##TYPE, &event, HANDLE_BYTES);        \
    }
#define SET_EVENT_IN_EXEC(name, TYPE)                                                              \
    PRETEND_CALL CUresult name(CUgraphExec exec, CUgraphNode node, CUevent event)                  \
    {                                                                                              \
        return set(in_exec(exec, node), CU_GRAPH_NODE_TYPE_##TYPE, &event, HANDLE_BYTES);          \
    }

GET(cuGraphKernelNodeGetParams, KERNEL, void, KERNEL_V1_BYTES)
SET(cuGraphKernelNodeSetParams, KERNEL, void, KERNEL_V1_BYTES)
SET_IN_EXEC(cuGraphExecKernelNodeSetParams, KERNEL, void, KERNEL_V1_BYTES)
GET(cuGraphKernelNodeGetParams_v2, KERNEL, CUDA_KERNEL_NODE_PARAMS, KERNEL_BYTES)
SET(cuGraphKernelNodeSetParams_v2, KERNEL, CUDA_KERNEL_NODE_PARAMS, KERNEL_BYTES)
SET_IN_EXEC(cuGraphExecKernelNodeSetParams_v2, KERNEL, CUDA_KERNEL_NODE_PARAMS, KERNEL_BYTES)
GET(cuGraphMemcpyNodeGetParams, MEMCPY, void, COPY_BYTES)
SET(cuGraphMemcpyNodeSetParams, MEMCPY, void, COPY_BYTES)
GET(cuGraphMemsetNodeGetParams, MEMSET, CUDA_MEMSET_NODE_PARAMS, SET_BYTES)
SET(cuGraphMemsetNodeSetParams, MEMSET, CUDA_MEMSET_NODE_PARAMS, SET_BYTES)
GET(cuGraphHostNodeGetParams, HOST, CUDA_HOST_NODE_PARAMS, HOST_BYTES)
SET(cuGraphHostNodeSetParams, HOST, CUDA_HOST_NODE_PARAMS, HOST_BYTES)
SET_IN_EXEC(cuGraphExecHostNodeSetParams, HOST, CUDA_HOST_NODE_PARAMS, HOST_BYTES)
GET(cuGraphEventRecordNodeGetEvent, EVENT_RECORD, CUevent, HANDLE_BYTES)
SET_EVENT(cuGraphEventRecordNodeSetEvent, EVENT_RECORD)
SET_EVENT_IN_EXEC(cuGraphExecEventRecordNodeSetEvent, EVENT_RECORD)
GET(cuGraphEventWaitNodeGetEvent, WAIT_EVENT, CUevent, HANDLE_BYTES)
SET_EVENT(cuGraphEventWaitNodeSetEvent, WAIT_EVENT)
SET_EVENT_IN_EXEC(cuGraphExecEventWaitNodeSetEvent, WAIT_EVENT)

/* These come with a context, which nothing here depends on. */

PRETEND_CALL CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                     const void *copy, CUcontext context)
{
    (void)context;
    return set(in_exec(exec, node), CU_GRAPH_NODE_TYPE_MEMCPY, copy, COPY_BYTES);
}

PRETEND_CALL CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                     const CUDA_MEMSET_NODE_PARAMS *params,
                                                     CUcontext context)
{
    (void)context;
    return set(in_exec(exec, node), CU_GRAPH_NODE_TYPE_MEMSET, params, SET_BYTES);
}

/* By one call, as cuGraphAddNode. */
static CUresult set_any(struct pretend_graph_node *node, const CUgraphNodeParams *params)
{
    if (!node || !params || node->type != params->type || !bytes_of(node->type))
        return CUDA_ERROR_INVALID_VALUE;
    size_t offset = node->type == CU_GRAPH_NODE_TYPE_MEMCPY ? COPY_OFFSET : 0;
    return set(node, node->type, params->u.bytes + offset, bytes_of(node->type));
}

PRETEND_CALL CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    return set_any(pretend_node_of(node), params);
}

PRETEND_CALL CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               CUgraphNodeParams *params)
{
    return set_any(in_exec(exec, node), params);
}

PRETEND_CALL CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle,
                                            unsigned is_enabled)
{
    struct pretend_graph_node *node = in_exec(exec, handle);
    if (!node ||
        (node->type != CU_GRAPH_NODE_TYPE_KERNEL && node->type != CU_GRAPH_NODE_TYPE_MEMSET &&
         node->type != CU_GRAPH_NODE_TYPE_MEMCPY))
        return CUDA_ERROR_INVALID_VALUE;
    node->is_disabled = !is_enabled;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle,
                                            unsigned *is_enabled)
{
    const struct pretend_graph_node *node = in_exec(exec, handle);
    if (!node || !is_enabled)
        return CUDA_ERROR_INVALID_VALUE;
    *is_enabled = !node->is_disabled;
    return CUDA_SUCCESS;
}

/* How a kernel is launched: of the attributes, two are kept. */

PRETEND_CALL CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, int attribute,
                                                    CUlaunchAttributeValue *value)
{
    const struct pretend_graph_node *node = pretend_node_of(handle);
    if (!node || node->type != CU_GRAPH_NODE_TYPE_KERNEL || !value)
        return CUDA_ERROR_INVALID_VALUE;
    memset(value, 0, sizeof *value);
    if (attribute == LAUNCH_COOPERATIVE)
        value->is_cooperative = node->is_cooperative;
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        value->priority = node->priority;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, int attribute,
                                                    const CUlaunchAttributeValue *value)
{
    struct pretend_graph_node *node = pretend_node_of(handle);
    if (!node || node->type != CU_GRAPH_NODE_TYPE_KERNEL || !value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == LAUNCH_COOPERATIVE)
        node->is_cooperative = value->is_cooperative;
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        node->priority = value->priority;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
    struct pretend_graph_node *node = pretend_node_of(to);
    const struct pretend_graph_node *other = pretend_node_of(from);
    if (!node || !other || node->type != CU_GRAPH_NODE_TYPE_KERNEL || other->type != node->type)
        return CUDA_ERROR_INVALID_VALUE;
    node->priority = other->priority;
    node->is_cooperative = other->is_cooperative;
    return CUDA_SUCCESS;
}
