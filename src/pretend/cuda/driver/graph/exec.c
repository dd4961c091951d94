/* SPDX-License-Identifier: MIT */
/* Executable graphs. A launch calls the host functions and does the small copies of its nodes; the
 * kernels of a graph do nothing, as everywhere here. */
#include "pretend/cuda/driver/work.h"

#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/driver/memory/linear.h"
#include "pretend/cuda/driver/memory/memory.h"

#define FLAGS_ALL 15u /* free at launch, upload, launch by the device, priorities of nodes */

static struct pretend_graph_exec *exec_of(CUgraphExec handle)
{
    return pretend_is(PRETEND_A_GRAPH_EXEC, handle) ? (void *)handle : NULL;
}

static int is_in_order(struct pretend_graph *graph)
{
    struct pretend_graph_node **order = malloc((graph->n + 1) * sizeof(void *));
    int is = order && !pretend_graph_order(graph, order);
    free(order);
    return is;
}

/* With the lock held. */
static CUresult make(const struct pretend_graph *graph, uint64_t flags,
                     struct pretend_graph_exec **made)
{
    struct pretend_graph_exec *exec = pretend_new(PRETEND_A_GRAPH_EXEC, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->graph = pretend_graph_copy(graph);
    if (!exec->graph) {
        pretend_delete(PRETEND_A_GRAPH_EXEC, exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec->graph->is_part = 1;
    exec->flags = flags;
    exec->id = pretend_next_id();
    *made = exec;
    return CUDA_SUCCESS;
}

/* With those of graphs within it. */
static uint64_t count_nodes(const struct pretend_graph *graph)
{
    uint64_t n = graph->n;
    for (size_t i = 0; i < graph->n; i++)
        if (graph->node[i]->type == CU_GRAPH_NODE_TYPE_GRAPH)
            n += count_nodes(graph->node[i]->params.child);
    return n;
}

/* Makes room in the context for nodes of so many bytes. Returns the pages that must be taken. */
static uint64_t add_nodes(struct pretend_context *context, uint64_t bytes)
{
    context->graph_bytes += bytes;
    uint64_t pages = pretend_round_up(context->graph_bytes, PRETEND_PAGE);
    uint64_t more = pages > context->graph_held ? pages - context->graph_held : 0;
    context->graph_held += more;
    return more;
}

/* What the nodes of the graph take of the device; the lock is not held. The nodes of all graphs of
 * a context share pages. The driver keeps those of a graph that is destroyed for the next one. */
static CUresult charge(struct pretend_graph_exec *exec)
{
    struct pretend_context *context = pretend_current();
    CUdeviceptr memory = 0;
    CUresult result = CUDA_SUCCESS;
    if (!context || !pretend_device(context->device)->gpu->graph_node_bytes)
        return CUDA_SUCCESS;
    uint64_t bytes =
        pretend_device(context->device)->gpu->graph_node_bytes * count_nodes(exec->graph);
    pretend_lock();
    uint64_t more = add_nodes(context, bytes);
    pretend_unlock();
    if (more)
        result = pretend_memory_take(context->device, more, MT_CATEGORY_GRAPHS, PRETEND_GRAPH_NODES,
                                     &memory);
    pretend_lock();
    if (result != CUDA_SUCCESS) {
        context->graph_bytes -= bytes;
        context->graph_held -= more;
    } else {
        exec->context = context;
        exec->node_bytes = bytes;
    }
    if (memory)
        pretend_range_find(memory)->context = context;
    pretend_unlock();
    return result;
}

/* With the lock held. */
static void uncharge(const struct pretend_graph_exec *exec)
{
    if (exec->context && pretend_is(PRETEND_A_CONTEXT, exec->context))
        exec->context->graph_bytes -= exec->node_bytes;
}

static CUresult instantiate(CUgraphExec *handle, CUgraph graph_handle, uint64_t flags,
                            CUgraphInstantiateResult *why)
{
    struct pretend_graph_exec *exec = NULL;
    CUresult result = pretend_enter();
    *why = CUDA_GRAPH_INSTANTIATE_ERROR;
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_graph *graph = pretend_graph_of(graph_handle);
    if (!graph || !handle || flags & ~(uint64_t)FLAGS_ALL) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (!is_in_order(graph)) {
        *why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        result = make(graph, flags, &exec);
    }
    pretend_unlock();
    if (result == CUDA_SUCCESS)
        result = charge(exec);
    if (result == CUDA_SUCCESS) {
        *handle = (void *)exec;
        *why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    } else if (exec) {
        cuGraphExecDestroy((void *)exec);
    }
    return result;
}

PRETEND_CALL CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                                  unsigned long long flags)
{
    CUgraphInstantiateResult why;
    return instantiate(exec, graph, flags, &why);
}

PRETEND_CALL CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                                   CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    params->hErrNode_out = NULL;
    return instantiate(exec, graph, params->flags, &params->result_out);
}

static CUresult instantiate_with_log(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                     char *log, size_t log_bytes)
{
    CUgraphInstantiateResult why;
    if (error_node)
        *error_node = NULL;
    if (log && log_bytes)
        log[0] = '\0';
    return instantiate(exec, graph, 0, &why);
}

PRETEND_CALL CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                         char *log, size_t log_bytes)
{
    return instantiate_with_log(exec, graph, error_node, log, log_bytes);
}

PRETEND_CALL CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph,
                                            CUgraphNode *error_node, char *log, size_t log_bytes)
{
    return instantiate_with_log(exec, graph, error_node, log, log_bytes);
}

PRETEND_CALL CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_graph_exec *exec = exec_of(handle);
    if (exec) {
        uncharge(exec);
        pretend_graph_delete(exec->graph);
        pretend_delete(PRETEND_A_GRAPH_EXEC, exec);
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pretend_unlock();
    pretend_user_objects_call();
    return result;
}

PRETEND_CALL CUresult cuGraphExecGetFlags(CUgraphExec handle, uint64_t *flags)
{
    const struct pretend_graph_exec *exec = exec_of(handle);
    if (!exec || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuGraphGetId(CUgraph handle, unsigned *id)
{
    const struct pretend_graph *graph = pretend_graph_of(handle);
    if (!graph || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = (unsigned)graph->id;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuGraphExecGetId(CUgraphExec handle, unsigned *id)
{
    const struct pretend_graph_exec *exec = exec_of(handle);
    if (!exec || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = (unsigned)exec->id;
    return CUDA_SUCCESS;
}

/* Launching. */

struct step {
    void (*run)(const void *what);
    const void *what;
    CUDA_HOST_NODE_PARAMS host;
    CUdeviceptr allocated, freed;
};
struct steps {
    struct step *at;
    size_t n, room;
};

static int add_step(struct steps *steps, struct step step)
{
    if (steps->n == steps->room) {
        size_t room = steps->room ? 2 * steps->room : 16;
        struct step *at = realloc(steps->at, room * sizeof *at);
        if (!at)
            return -1;
        steps->at = at;
        steps->room = room;
    }
    steps->at[steps->n++] = step;
    return 0;
}

static int find_steps(struct pretend_graph *graph, struct steps *steps)
{
    struct pretend_graph_node **order = malloc((graph->n + 1) * sizeof(void *));
    int failed = !order || pretend_graph_order(graph, order);
    for (size_t i = 0; !failed && i < graph->n; i++) {
        const struct pretend_graph_node *node = order[i];
        if (node->is_disabled)
            continue;
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            failed = find_steps(node->params.child, steps);
        else if (node->type == CU_GRAPH_NODE_TYPE_HOST)
            failed = add_step(steps, (struct step){.host = node->params.host});
        else if (node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
            pretend_event_record(node->params.event);
        else if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            failed = add_step(steps, (struct step){.allocated = node->params.alloc.dptr});
        else if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            failed = add_step(steps, (struct step){.freed = node->params.free});
        else if (node->run)
            failed = add_step(steps, (struct step){.run = node->run, .what = node->what});
    }
    free(order);
    return failed;
}

static CUresult take_step(const struct step *step)
{
    if (step->allocated)
        return pretend_graph_memory_attach(step->allocated);
    if (step->freed)
        pretend_graph_memory_detach(step->freed);
    else if (step->run)
        step->run(step->what);
    else
        step->host.fn(step->host.userData);
    return CUDA_SUCCESS;
}

static CUresult launch_in_capture(struct pretend_stream *stream, const struct pretend_graph *graph)
{
    struct pretend_graph *copy = pretend_graph_copy(graph);
    struct pretend_graph_node *node =
        copy ? pretend_capture_node(stream, CU_GRAPH_NODE_TYPE_GRAPH) : NULL;
    if (!node) {
        if (copy)
            pretend_graph_delete(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    copy->is_part = 1;
    node->params.child = copy;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    struct pretend_stream *stream;
    struct steps steps = {0};
    pretend_lock();
    CUresult result = pretend_stream_for_work(stream_handle, &stream);
    struct pretend_graph_exec *exec = exec_of(handle);
    if (result == CUDA_SUCCESS && !exec)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (result == CUDA_SUCCESS && stream->capture)
        result = launch_in_capture(stream, exec->graph);
    else if (result == CUDA_SUCCESS && find_steps(exec->graph, &steps))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    pretend_unlock();
    for (size_t i = 0; i < steps.n && result == CUDA_SUCCESS; i++)
        result = take_step(&steps.at[i]);
    free(steps.at);
    return result;
}

PRETEND_CALL CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle)
{
    struct pretend_stream *stream;
    pretend_lock();
    CUresult result = pretend_stream_for_work(stream_handle, &stream);
    if (result == CUDA_SUCCESS && !exec_of(handle))
        result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    return result;
}

/* Updating. */

static int are_same_edges(const struct pretend_edges *one, const struct pretend_edges *other)
{
    if (one->n != other->n)
        return 0;
    for (size_t i = 0; i < one->n; i++) {
        size_t j = 0;
        while (j < other->n && other->at[j].node->index != one->at[i].node->index)
            j++;
        if (j == other->n)
            return 0;
    }
    return 1;
}

/* Nodes are matched by their place in the graph, as they were added. */
static CUgraphExecUpdateResult compare(const struct pretend_graph *old,
                                       const struct pretend_graph *new,
                                       CUgraphExecUpdateResultInfo *info)
{
    if (old->n != new->n)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < old->n; i++) {
        info->errorNode = (void *)new->node[i];
        if (old->node[i]->type != new->node[i]->type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (!are_same_edges(&old->node[i]->before, &new->node[i]->before))
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    info->errorNode = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult update(struct pretend_graph_exec *exec, const struct pretend_graph *graph,
                       CUgraphExecUpdateResultInfo *info)
{
    struct pretend_graph *copy;
    info->result = compare(exec->graph, graph, info);
    if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    copy = pretend_graph_copy(graph);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    copy->is_part = 1;
    for (size_t i = 0; i < copy->n; i++) {
        copy->node[i]->id = exec->graph->node[i]->id;
        copy->node[i]->is_disabled = exec->graph->node[i]->is_disabled;
    }
    pretend_graph_delete(exec->graph);
    exec->graph = copy;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle,
                                           CUgraphExecUpdateResultInfo *info)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (!info)
        return result;
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    pretend_lock();
    struct pretend_graph_exec *exec = exec_of(handle);
    const struct pretend_graph *graph = pretend_graph_of(graph_handle);
    if (exec && graph)
        result = update(exec, graph, info);
    pretend_unlock();
    pretend_user_objects_call();
    return result;
}

PRETEND_CALL CUresult cuGraphExecUpdate(CUgraphExec handle, CUgraph graph, CUgraphNode *error_node,
                                        int *update_result)
{
    CUgraphExecUpdateResultInfo info;
    CUresult result = cuGraphExecUpdate_v2(handle, graph, &info);
    if (error_node)
        *error_node = info.errorNode;
    if (update_result)
        *update_result = (int)info.result;
    return result;
}

PRETEND_CALL CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                                         CUgraph child)
{
    if (!exec_of(handle) || !pretend_node_of(node) || !pretend_graph_of(child) ||
        pretend_node_of(node)->type != CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
