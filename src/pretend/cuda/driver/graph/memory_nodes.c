/* SPDX-License-Identifier: MIT */
/* Nodes that allocate memory and free it. An allocation has its address from the making of its node
 * until the last graph that has it is gone, and is in use from a launch that allocates it until it
 * is freed. */
#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/driver/work.h"

#define LOCATION_DEVICE 1

/* The beginning of CUmemPoolProps. */
struct pool_properties {
    int allocation_type, handle_types;
    struct {
        int type, id;
    } location;
};

static struct pretend_node_memory *memory_new(CUdeviceptr pointer)
{
    struct pretend_node_memory *memory = malloc(sizeof *memory);
    if (memory)
        *memory = (struct pretend_node_memory){.pointer = pointer, .references = 1};
    return memory;
}

void pretend_node_memory(struct pretend_graph_node *node, CUdevice device, CUdeviceptr pointer,
                         uint64_t bytes)
{
    pretend_lock();
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        struct pool_properties pool = {.allocation_type = 1, .location = {LOCATION_DEVICE, device}};
        node->params.alloc = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = bytes, .dptr = pointer};
        memcpy(node->params.alloc.pool_properties, &pool, sizeof pool);
        node->memory = memory_new(pointer);
    } else {
        node->params.free = pointer;
    }
    pretend_unlock();
}

static CUresult add_empty(const struct pretend_place_in_graph *place)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return cuGraphAddNode_v2(place->node, place->graph, place->before, place->edges, place->n,
                             &params);
}

CUresult pretend_add_alloc_node(const struct pretend_place_in_graph *place,
                                CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    struct pool_properties pool;
    CUdeviceptr pointer;
    if (!params || !place->node)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&pool, params->pool_properties, sizeof pool);
    if (pool.location.type != LOCATION_DEVICE || pool.handle_types)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = add_empty(place);
    if (result != CUDA_SUCCESS)
        return result;
    result = pretend_graph_memory_make(pool.location.id, params->bytesize, &pointer);
    if (result != CUDA_SUCCESS) {
        cuGraphDestroyNode(*place->node);
        return result;
    }
    struct pretend_graph_node *node = pretend_node_of(*place->node);
    node->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    pretend_node_memory(node, pool.location.id, pointer, params->bytesize);
    params->dptr = pointer;
    return CUDA_SUCCESS;
}

CUresult pretend_add_free_node(const struct pretend_place_in_graph *place, CUdeviceptr pointer)
{
    if (!pointer)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = add_empty(place);
    if (result != CUDA_SUCCESS)
        return result;
    struct pretend_graph_node *node = pretend_node_of(*place->node);
    node->type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    node->params.free = pointer;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph,
                                             const CUgraphNode *before, size_t n,
                                             CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    const struct pretend_place_in_graph place = {node, graph, before, NULL, n};
    return pretend_add_alloc_node(&place, params);
}

PRETEND_CALL CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph,
                                            const CUgraphNode *before, size_t n,
                                            CUdeviceptr pointer)
{
    const struct pretend_place_in_graph place = {node, graph, before, NULL, n};
    return pretend_add_free_node(&place, pointer);
}

PRETEND_CALL CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle,
                                                   CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    const struct pretend_graph_node *node = pretend_node_of(handle);
    if (!node || !params || node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->params.alloc;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *pointer)
{
    const struct pretend_graph_node *node = pretend_node_of(handle);
    if (!node || !pointer || node->type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *pointer = node->params.free;
    return CUDA_SUCCESS;
}
