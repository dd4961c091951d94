/* SPDX-License-Identifier: MIT */
/* What a program asks of a graph's nodes and of what waits for what, and changes there. */
#include "pretend/cuda/driver/work.h"

#include <stdio.h>

#include "pretend/cuda/abi/driver_calls.h"

/* Lists are told into arrays of the program: with no array their length, else as many as there is
 * room for; what is left of the room is zeroed. */
struct list {
    CUgraphNode *nodes, *others;
    CUgraphEdgeData *edges;
    size_t room, n;
};

static void put(struct list *list, struct pretend_graph_node *node,
                struct pretend_graph_node *other, const CUgraphEdgeData *edge)
{
    if (list->n < list->room && list->nodes) {
        list->nodes[list->n] = (void *)node;
        if (list->others)
            list->others[list->n] = (void *)other;
        if (list->edges)
            list->edges[list->n] = edge ? *edge : (CUgraphEdgeData){0};
    }
    list->n++;
}

static CUresult told(struct list *list, size_t *n)
{
    if (!list->nodes) {
        *n = list->n;
        return CUDA_SUCCESS;
    }
    size_t written = list->n < list->room ? list->n : list->room;
    for (size_t i = written; i < list->room; i++) {
        list->nodes[i] = NULL;
        if (list->others)
            list->others[i] = NULL;
    }
    *n = written;
    return CUDA_SUCCESS;
}

static CUresult get_nodes(CUgraph handle, CUgraphNode *nodes, size_t *n, int roots_only)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    struct pretend_graph *graph = pretend_graph_of(handle);
    if (graph && n) {
        struct list list = {.nodes = nodes, .room = *n};
        for (size_t i = 0; i < graph->n; i++)
            if (!roots_only || !graph->node[i]->before.n)
                put(&list, graph->node[i], NULL, NULL);
        result = told(&list, n);
    }
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    return get_nodes(graph, nodes, n, 0);
}

PRETEND_CALL CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    return get_nodes(graph, nodes, n, 1);
}

PRETEND_CALL CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to,
                                         CUgraphEdgeData *edges, size_t *n)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    struct pretend_graph *graph = pretend_graph_of(handle);
    if (graph && n && !from == !to) {
        struct list list = {from, to, edges, *n, 0};
        for (size_t i = 0; i < graph->n; i++)
            for (size_t j = 0; j < graph->node[i]->before.n; j++)
                put(&list, graph->node[i]->before.at[j].node, graph->node[i],
                    &graph->node[i]->before.at[j].data);
        result = told(&list, n);
    }
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n)
{
    return cuGraphGetEdges_v2(graph, from, to, NULL, n);
}

/* The nodes that `put_all` finds at a node, with their edges. */
static CUresult neighbours(CUgraphNode handle, struct list list, size_t *n,
                           void (*put_all)(const struct pretend_graph_node *node,
                                           struct list *list))
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    const struct pretend_graph_node *node = pretend_node_of(handle);
    if (node && n) {
        list.room = *n;
        put_all(node, &list);
        result = told(&list, n);
    }
    pretend_unlock();
    return result;
}

static void put_dependencies(const struct pretend_graph_node *node, struct list *list)
{
    for (size_t i = 0; i < node->before.n; i++)
        put(list, node->before.at[i].node, NULL, &node->before.at[i].data);
}

PRETEND_CALL CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode *nodes,
                                                    CUgraphEdgeData *edges, size_t *n)
{
    return neighbours(handle, (struct list){.nodes = nodes, .edges = edges}, n, put_dependencies);
}

PRETEND_CALL CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *n)
{
    return cuGraphNodeGetDependencies_v2(node, nodes, NULL, n);
}

static void put_followers(const struct pretend_graph_node *node, struct list *list)
{
    for (size_t i = 0; i < node->graph->n; i++) {
        struct pretend_graph_node *other = node->graph->node[i];
        for (size_t j = 0; j < other->before.n; j++)
            if (other->before.at[j].node == node)
                put(list, other, NULL, &other->before.at[j].data);
    }
}

PRETEND_CALL CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode *nodes,
                                                      CUgraphEdgeData *edges, size_t *n)
{
    return neighbours(handle, (struct list){.nodes = nodes, .edges = edges}, n, put_followers);
}

PRETEND_CALL CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *n)
{
    return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, n);
}

static int is_edge(const struct pretend_graph *graph, CUgraphNode from, CUgraphNode to)
{
    return pretend_node_of(from) && pretend_node_of(to) && from != to &&
           pretend_node_of(from)->graph == graph && pretend_node_of(to)->graph == graph;
}

static size_t find_edge(const struct pretend_edges *before, const struct pretend_graph_node *node)
{
    size_t i = 0;
    while (i < before->n && before->at[i].node != node)
        i++;
    return i;
}

static CUresult change(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                       const CUgraphEdgeData *edges, size_t n, int is_removal)
{
    struct pretend_graph *graph = pretend_graph_of(handle);
    if (!graph || (n && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        if (!is_edge(graph, from[i], to[i]))
            return CUDA_ERROR_INVALID_VALUE;
        struct pretend_edges *before = &pretend_node_of(to[i])->before;
        if ((find_edge(before, (void *)from[i]) < before->n) != is_removal)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < n; i++) {
        struct pretend_edges *before = &pretend_node_of(to[i])->before;
        if (is_removal) {
            size_t at = find_edge(before, (void *)from[i]);
            if (at < before->n)
                before->at[at] = before->at[--before->n];
        } else if (pretend_edges_add(before, (void *)from[i], edges ? &edges[i] : NULL)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult change_locked(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                              const CUgraphEdgeData *edges, size_t n, int is_removal)
{
    pretend_lock();
    CUresult result = change(handle, from, to, edges, n, is_removal);
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from,
                                                const CUgraphNode *to, const CUgraphEdgeData *edges,
                                                size_t n)
{
    return change_locked(graph, from, to, edges, n, 0);
}

PRETEND_CALL CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
                                             const CUgraphNode *to, size_t n)
{
    return change_locked(graph, from, to, NULL, n, 0);
}

PRETEND_CALL CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from,
                                                   const CUgraphNode *to,
                                                   const CUgraphEdgeData *edges, size_t n)
{
    return change_locked(graph, from, to, edges, n, 1);
}

PRETEND_CALL CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
                                                const CUgraphNode *to, size_t n)
{
    return change_locked(graph, from, to, NULL, n, 1);
}

PRETEND_CALL CUresult cuGraphNodeGetType(CUgraphNode handle, int *type)
{
    const struct pretend_graph_node *node = pretend_node_of(handle);
    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = (int)node->type;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode original,
                                             CUgraph clone)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    const struct pretend_graph_node *node = pretend_node_of(original);
    const struct pretend_graph *graph = pretend_graph_of(clone);
    for (size_t i = 0; found && node && graph && i < graph->n; i++) {
        if (graph->node[i]->id == node->id) {
            *found = (void *)graph->node[i];
            result = CUDA_SUCCESS;
        }
    }
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned flags)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    FILE *file = path ? fopen(path, "we") : NULL;
    (void)flags;
    pretend_lock();
    const struct pretend_graph *graph = pretend_graph_of(handle);
    if (graph && file) {
        fprintf(file, "digraph dot {\n");
        for (size_t i = 0; i < graph->n; i++) {
            fprintf(file, "  node_%zu [label=\"type %d\"];\n", i, (int)graph->node[i]->type);
            for (size_t j = 0; j < graph->node[i]->before.n; j++)
                fprintf(file, "  node_%zu -> node_%zu;\n", graph->node[i]->before.at[j].node->index,
                        i);
        }
        fprintf(file, "}\n");
        result = CUDA_SUCCESS;
    }
    pretend_unlock();
    if (file)
        fclose(file);
    return result;
}
