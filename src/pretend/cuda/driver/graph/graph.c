/* SPDX-License-Identifier: MIT */
/* Graphs: their nodes, what waits for what, copies, and the user objects that they keep alive. */
#include "pretend/cuda/driver/work.h"

#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"

/* Lists of what must be done before. */

int pretend_edges_add(struct pretend_edges *edges, struct pretend_graph_node *node,
                      const CUgraphEdgeData *data)
{
    for (size_t i = 0; i < edges->n; i++)
        if (edges->at[i].node == node)
            return 0;
    if (edges->n == edges->room) {
        size_t room = edges->room ? 2 * edges->room : 2;
        struct pretend_edge *at = realloc(edges->at, room * sizeof *at);
        if (!at)
            return -1;
        edges->at = at;
        edges->room = room;
    }
    edges->at[edges->n].node = node;
    edges->at[edges->n++].data = data ? *data : (CUgraphEdgeData){0};
    return 0;
}

int pretend_edges_copy(struct pretend_edges *edges, const struct pretend_edges *from)
{
    for (size_t i = 0; i < from->n; i++)
        if (pretend_edges_add(edges, from->at[i].node, &from->at[i].data))
            return -1;
    return 0;
}

void pretend_edges_clear(struct pretend_edges *edges)
{
    free(edges->at);
    *edges = (struct pretend_edges){0};
}

/* Nodes. */

struct pretend_graph *pretend_graph_of(CUgraph handle)
{
    return pretend_is(PRETEND_A_GRAPH, handle) ? (void *)handle : NULL;
}

struct pretend_graph_node *pretend_node_of(CUgraphNode handle)
{
    return pretend_is(PRETEND_A_GRAPH_NODE, handle) ? (void *)handle : NULL;
}

struct pretend_graph_node *pretend_graph_add(struct pretend_graph *graph, CUgraphNodeType type)
{
    struct pretend_graph_node *node;
    if (graph->n == graph->room) {
        size_t room = graph->room ? 2 * graph->room : 16;
        struct pretend_graph_node **nodes = realloc(graph->node, room * sizeof(void *));
        if (!nodes)
            return NULL;
        graph->node = nodes;
        graph->room = room;
    }
    node = pretend_new(PRETEND_A_GRAPH_NODE, sizeof *node);
    if (!node)
        return NULL;
    node->type = type;
    node->graph = graph;
    node->id = pretend_next_id();
    node->index = graph->n;
    graph->node[graph->n++] = node;
    return node;
}

static void delete_node(struct pretend_graph_node *node)
{
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH && node->params.child)
        pretend_graph_delete(node->params.child);
    if (node->memory)
        pretend_node_memory_release(node->memory);
    pretend_edges_clear(&node->before);
    free(node->what);
    pretend_delete(PRETEND_A_GRAPH_NODE, node);
}

static int copy_node(struct pretend_graph *graph, const struct pretend_graph_node *from)
{
    struct pretend_graph_node *node = pretend_graph_add(graph, from->type);
    if (!node)
        return -1;
    node->params = from->params;
    node->id = from->id;
    node->priority = from->priority;
    node->is_cooperative = from->is_cooperative;
    node->is_disabled = from->is_disabled;
    node->memory = from->memory;
    if (node->memory)
        node->memory->references++;
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        node->params.child = pretend_graph_copy(from->params.child);
        if (!node->params.child)
            return -1;
        node->params.child->is_part = 1;
    }
    if (from->run) {
        node->what = malloc(from->what_bytes ? from->what_bytes : 1);
        if (!node->what)
            return -1;
        memcpy(node->what, from->what, from->what_bytes);
        node->what_bytes = from->what_bytes;
        node->run = from->run;
    }
    return 0;
}

/* Graphs. */

struct pretend_graph *pretend_graph_new(void)
{
    struct pretend_graph *graph = pretend_new(PRETEND_A_GRAPH, sizeof *graph);
    if (graph)
        graph->id = pretend_next_id();
    return graph;
}

void pretend_graph_delete(struct pretend_graph *graph)
{
    for (size_t i = 0; i < graph->n; i++)
        delete_node(graph->node[i]);
    for (size_t i = 0; i < graph->n_uses; i++)
        pretend_user_object_release(graph->use[i].object, graph->use[i].count);
    free(graph->node);
    free(graph->use);
    pretend_delete(PRETEND_A_GRAPH, graph);
}

static int copy_uses(struct pretend_graph *copy, const struct pretend_graph *graph)
{
    if (!graph->n_uses)
        return 0;
    copy->use = malloc(graph->n_uses * sizeof *copy->use);
    if (!copy->use)
        return -1;
    for (size_t i = 0; i < graph->n_uses; i++) {
        copy->use[copy->n_uses++] = graph->use[i];
        graph->use[i].object->references += graph->use[i].count;
    }
    return 0;
}

static int copy_edges(struct pretend_graph *copy, const struct pretend_graph *graph)
{
    for (size_t i = 0; i < graph->n; i++) {
        const struct pretend_edges *before = &graph->node[i]->before;
        for (size_t j = 0; j < before->n; j++)
            if (pretend_edges_add(&copy->node[i]->before, copy->node[before->at[j].node->index],
                                  &before->at[j].data))
                return -1;
    }
    return 0;
}

struct pretend_graph *pretend_graph_copy(const struct pretend_graph *graph)
{
    struct pretend_graph *copy = pretend_graph_new();
    int failed = !copy;
    for (size_t i = 0; !failed && i < graph->n; i++)
        failed = copy_node(copy, graph->node[i]);
    if (!failed && !copy_edges(copy, graph) && !copy_uses(copy, graph))
        return copy;
    if (copy)
        pretend_graph_delete(copy);
    return NULL;
}

/* The indices of the nodes that wait for a node, those of node i from start[i] up to start[i + 1].
 */
struct followers {
    size_t *start;
    size_t *index;
};

static int find_followers(const struct pretend_graph *graph, struct followers *followers)
{
    size_t n = graph->n, n_edges = 0;
    followers->start = calloc(n + 2, sizeof *followers->start);
    for (size_t i = 0; followers->start && i < n; i++) {
        const struct pretend_edges *before = &graph->node[i]->before;
        n_edges += before->n;
        for (size_t j = 0; j < before->n; j++)
            followers->start[before->at[j].node->index + 2]++;
    }
    followers->index = followers->start ? malloc((n_edges + 1) * sizeof *followers->index) : NULL;
    if (!followers->index)
        return -1;
    for (size_t i = 2; i < n + 2; i++)
        followers->start[i] += followers->start[i - 1];
    for (size_t i = 0; i < n; i++) {
        const struct pretend_edges *before = &graph->node[i]->before;
        for (size_t j = 0; j < before->n; j++)
            followers->index[followers->start[before->at[j].node->index + 1]++] = i;
    }
    return 0;
}

static size_t put_in_order(const struct pretend_graph *graph, const struct followers *followers,
                           struct pretend_graph_node **order)
{
    size_t n = 0, done = 0;
    for (size_t i = 0; i < graph->n; i++) {
        graph->node[i]->mark = (int)graph->node[i]->before.n;
        if (!graph->node[i]->mark)
            order[n++] = graph->node[i];
    }
    for (; done < n; done++) {
        size_t index = order[done]->index;
        for (size_t k = followers->start[index]; k < followers->start[index + 1]; k++)
            if (--graph->node[followers->index[k]]->mark == 0)
                order[n++] = graph->node[followers->index[k]];
    }
    return done;
}

int pretend_graph_order(struct pretend_graph *graph, struct pretend_graph_node **order)
{
    struct followers followers = {0};
    size_t done = 0;
    int failed = find_followers(graph, &followers);
    if (!failed)
        done = put_in_order(graph, &followers, order);
    free(followers.start);
    free(followers.index);
    return failed || done != graph->n ? -1 : 0;
}

PRETEND_CALL CUresult cuGraphCreate(CUgraph *handle, unsigned flags)
{
    struct pretend_graph *graph;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    graph = pretend_graph_new();
    pretend_unlock();
    *handle = (void *)graph;
    return graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

PRETEND_CALL CUresult cuGraphDestroy(CUgraph handle)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_graph *graph = pretend_graph_of(handle);
    if (graph && !graph->is_part)
        pretend_graph_delete(graph);
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    pretend_user_objects_call();
    return result;
}

PRETEND_CALL CUresult cuGraphClone(CUgraph *clone, CUgraph handle)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_graph *graph = pretend_graph_of(handle), *copy = NULL;
    if (!graph || !clone)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!(copy = pretend_graph_copy(graph)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        *clone = (void *)copy;
    pretend_unlock();
    return result;
}

/* What handles of nodes were left behind by a removed one. */
static void remove_node(struct pretend_graph_node *node)
{
    struct pretend_graph *graph = node->graph;
    for (size_t i = 0; i < graph->n; i++) {
        struct pretend_edges *before = &graph->node[i]->before;
        for (size_t j = 0; j < before->n; j++)
            if (before->at[j].node == node)
                before->at[j--] = before->at[--before->n];
    }
    memmove(&graph->node[node->index], &graph->node[node->index + 1],
            (graph->n - node->index - 1) * sizeof(void *));
    graph->n--;
    for (size_t i = node->index; i < graph->n; i++)
        graph->node[i]->index = i;
    delete_node(node);
}

PRETEND_CALL CUresult cuGraphDestroyNode(CUgraphNode handle)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_graph_node *node = pretend_node_of(handle);
    if (!node)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
             node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        result = CUDA_ERROR_NOT_SUPPORTED;
    else
        remove_node(node);
    pretend_unlock();
    return result;
}
