/* SPDX-License-Identifier: MIT */
/* Shows a split of the replayed graph to the patterns of fused operations. Knows no model. */
#include "fused.h"

#include <string.h>

struct split {
    struct mt_graph *graph;
    struct mt_node **nodes; /* behind them those of the next split */
};

static struct mt_node *node_of(const struct mt_fused_graph *fused, size_t i)
{
    return ((const struct split *)fused->context)->nodes[i];
}

static void *at(const struct mt_fused_graph *fused, size_t i)
{
    return node_of(fused, i);
}

static enum mt_kind kind(const struct mt_fused_graph *fused, const void *of)
{
    const struct mt_node *node = of;
    (void)fused;
    return (enum mt_kind)node->kind;
}

static void read_node(const struct mt_fused_graph *fused, const void *of,
                      struct mt_fused_node *read)
{
    const struct mt_node *node = of;
    (void)fused;
    int is_leaf = node->op == MT_OP_NONE;
    *read = (struct mt_fused_node){
        .view_of = node->view_of,
        .view_offset = MT_FUSED_ANYWHERE,
        .type = node->weight_type,
        .is_f32 = node->type == MT_TYPE_F32,
        /* Strides of weights are those of their own type, which this graph has no arithmetic of. */
        .is_contiguous = (is_leaf && node->weight_type) || mt_node_is_contiguous(node),
        .is_leaf = is_leaf,
        .is_quantised_weight = node->flags & MT_NODE_EXTERNAL && node->quantised};
    for (int i = 0; i < MT_GRAPH_SOURCES_MAX; i++)
        read->sources[i] = node->sources[i];
    memcpy(read->ne, node->ne, sizeof read->ne);
    memcpy(read->nb, node->nb, sizeof read->nb);
}

static int is_among(const struct mt_fused_graph *fused, const size_t *numbers, size_t n,
                    const struct mt_node *node)
{
    for (size_t i = 0; i < n; i++)
        if (node_of(fused, numbers[i]) == node)
            return 1;
    return 0;
}

/* How often the nodes read one of them. */
static int uses_among(const struct mt_fused_graph *fused, const size_t *numbers, size_t n,
                      const struct mt_node *node)
{
    int uses = 0;
    for (size_t i = 0; i < n; i++)
        for (int j = 0; j < MT_GRAPH_SOURCES_MAX; j++)
            uses += node_of(fused, numbers[i])->sources[j] == node;
    return uses;
}

static int can_fuse(const struct mt_fused_graph *fused, const size_t *numbers, size_t n,
                    const size_t *outputs, size_t n_outputs)
{
    for (size_t i = 0; i < n; i++) {
        const struct mt_node *node = node_of(fused, numbers[i]);
        if (is_among(fused, outputs, n_outputs, node))
            continue;
        if (node->flags & MT_NODE_OUTPUT || uses_among(fused, numbers, n, node) != node->uses)
            return 0;
        if (node->view_of && !is_among(fused, numbers, n, node->view_of) &&
            !(node->view_of->flags & MT_NODE_WEIGHT))
            return 0;
    }
    return 1;
}

static void keep(const struct mt_fused_graph *fused, void *kept, void *after)
{
    struct mt_graph *graph = ((const struct split *)fused->context)->graph;
    struct mt_node *node = kept;
    struct mt_node *until = after;
    if (!until->kept)
        until->kept = mt_arena_array(graph->arena, 1, sizeof *until->kept);
    if (!until->kept) {
        graph->failed = 1;
        return;
    }
    for (size_t i = 0; i < until->kept->n; i++)
        if (until->kept->at[i] == node)
            return;
    if (mt_node_list_add(graph->arena, until->kept, node) < 0)
        graph->failed = 1;
}

static void move_three(const struct mt_fused_graph *fused, size_t to, size_t from)
{
    struct mt_node **nodes = ((const struct split *)fused->context)->nodes;
    struct mt_node *moved[3];
    memcpy(moved, nodes + from, sizeof moved);
    memmove(nodes + to + 3, nodes + to, (from - to) * sizeof *nodes);
    memcpy(nodes + to, moved, sizeof moved);
}

void mt_graph_keep_fused(struct mt_graph *graph, size_t start, size_t end, unsigned kept)
{
    struct split split = {graph, graph->nodes.at + start};
    const struct mt_fused_graph fused = {.context = &split,
                                         .n = end - start,
                                         .n_to_end = graph->nodes.n - start,
                                         .at = at,
                                         .kind = kind,
                                         .read = read_node,
                                         .can_fuse = can_fuse,
                                         .keep = keep,
                                         .move_three = move_three};
    mt_fused_keep(&fused, kept);
}
