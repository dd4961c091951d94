/* SPDX-License-Identifier: MIT */
/* The operations of a graph: what shape each result has and what it reads. */
#include <string.h>

#include "graph.h"

static struct mt_node *made(struct mt_graph *graph, enum mt_op op, const uint64_t ne[4],
                            struct mt_node *a, struct mt_node *b)
{
    struct mt_node *node = mt_node_new(graph, op, MT_TYPE_F32, ne);
    node->sources[0] = a;
    node->sources[1] = b;
    return node;
}

static struct mt_node *looking_at(struct mt_graph *graph, enum mt_op op, struct mt_node *a,
                                  const uint64_t ne[4], const uint64_t nb[4])
{
    struct mt_node shape = {.type = a->type, .quantised = a->quantised, .part = graph->part};
    memcpy(shape.ne, ne, sizeof shape.ne);
    memcpy(shape.nb, nb, sizeof shape.nb);
    struct mt_node *node = mt_node_twin(graph, &shape);
    node->op = (uint8_t)op;
    node->view_of = a->view_of ? a->view_of : a;
    mt_node_measure(node);
    return node;
}

struct mt_node *mt_op_view(struct mt_graph *graph, struct mt_node *a, const uint64_t ne[4],
                           const uint64_t nb[4])
{
    struct mt_node *node = looking_at(graph, MT_OP_VIEW, a, ne, nb);
    node->sources[0] = a;
    return mt_node_of_kind(node, MT_KIND_VIEW);
}

struct mt_node *mt_op_reshape(struct mt_graph *graph, struct mt_node *a, uint64_t ne0, uint64_t ne1,
                              uint64_t ne2, uint64_t ne3)
{
    uint64_t row = mt_graph_row_bytes(a->type, ne0);
    uint64_t unit = a->quantised ? a->nb[0] : mt_graph_row_bytes(a->type, 1);
    struct mt_node *node = mt_op_view(graph, a, (uint64_t[4]){ne0, ne1, ne2, ne3},
                                      (uint64_t[4]){unit, row, row * ne1, row * ne1 * ne2});
    return mt_node_of_kind(node, MT_KIND_RESHAPE);
}

struct mt_node *mt_op_permute(struct mt_graph *graph, struct mt_node *a, int to0, int to1, int to2,
                              int to3)
{
    const int to[4] = {to0, to1, to2, to3};
    uint64_t ne[4];
    uint64_t nb[4];
    for (int i = 0; i < 4; i++) {
        ne[to[i]] = a->ne[i];
        nb[to[i]] = a->nb[i];
    }
    return mt_node_of_kind(mt_op_view(graph, a, ne, nb), MT_KIND_OTHER);
}

struct mt_node *mt_op_transpose(struct mt_graph *graph, struct mt_node *a)
{
    return mt_op_permute(graph, a, 1, 0, 2, 3);
}

struct mt_node *mt_op_columns(struct mt_graph *graph, struct mt_node *a, uint64_t ne0)
{
    return mt_op_view(graph, a, (uint64_t[4]){ne0, a->ne[1], a->ne[2], a->ne[3]}, a->nb);
}

struct mt_node *mt_op_heads(struct mt_graph *graph, struct mt_node *a, uint64_t ne0, uint64_t ne1,
                            uint64_t nb1)
{
    return mt_op_view(graph, a, (uint64_t[4]){ne0, ne1, a->ne[1], a->ne[2]},
                      (uint64_t[4]){a->nb[0], nb1, a->nb[1], a->nb[2]});
}

struct mt_node *mt_op_mul_mat(struct mt_graph *graph, struct mt_node *a, struct mt_node *b)
{
    const uint64_t ne[4] = {a->ne[1], b->ne[1], b->ne[2], b->ne[3]};
    return mt_node_of_kind(made(graph, MT_OP_MUL_MAT, ne, a, b), MT_KIND_MUL_MAT);
}

struct mt_node *mt_op_mul_mat_id(struct mt_graph *graph, struct mt_node *experts, struct mt_node *b,
                                 struct mt_node *ids)
{
    const uint64_t ne[4] = {experts->ne[1], ids->ne[0], b->ne[2], 1};
    struct mt_node *node = made(graph, MT_OP_MUL_MAT_ID, ne, experts, b);
    node->sources[2] = ids;
    return mt_node_of_kind(node, MT_KIND_EXPERTS);
}

struct mt_node *mt_op_get_rows(struct mt_graph *graph, struct mt_node *a, struct mt_node *rows)
{
    const uint64_t ne[4] = {a->ne[0], rows->ne[0], rows->ne[1], rows->ne[2]};
    return mt_node_of_kind(made(graph, MT_OP_GET_ROWS, ne, a, rows), MT_KIND_GET_ROWS);
}

struct mt_node *mt_op_rope(struct mt_graph *graph, struct mt_node *a, struct mt_node *positions,
                           struct mt_node *factors)
{
    struct mt_node *node = made(graph, MT_OP_ROPE, a->ne, a, positions);
    node->sources[2] = factors;
    return node;
}

struct mt_node *mt_op_map(struct mt_graph *graph, struct mt_node *a, struct mt_node *b)
{
    struct mt_node *node = mt_node_new(graph, MT_OP_INPLACE, (enum mt_graph_type)a->type, a->ne);
    node->sources[0] = a;
    node->sources[1] = b;
    return node;
}

struct mt_node *mt_op_add_id(struct mt_graph *graph, struct mt_node *a, struct mt_node *b,
                             struct mt_node *ids)
{
    struct mt_node *node = mt_op_map(graph, a, b);
    node->sources[2] = ids;
    return node;
}

struct mt_node *mt_op_soft_max(struct mt_graph *graph, struct mt_node *a, struct mt_node *mask,
                               struct mt_node *sinks)
{
    struct mt_node *node = mt_op_map(graph, a, mask);
    node->sources[2] = sinks;
    return mt_node_of_kind(node, MT_KIND_SOFT_MAX);
}

struct mt_node *mt_op_glu(struct mt_graph *graph, struct mt_node *a, struct mt_node *b)
{
    const uint64_t ne[4] = {b ? a->ne[0] : a->ne[0] / 2, a->ne[1], a->ne[2], a->ne[3]};
    return mt_node_of_kind(made(graph, MT_OP_NEW, ne, a, b), MT_KIND_GLU);
}

struct mt_node *mt_op_concat(struct mt_graph *graph, struct mt_node *a, struct mt_node *b,
                             int dimension)
{
    uint64_t ne[4];
    memcpy(ne, a->ne, sizeof ne);
    ne[dimension] += b->ne[dimension];
    return made(graph, MT_OP_NEW, ne, a, b);
}

struct mt_node *mt_op_make(struct mt_graph *graph, const uint64_t ne[4], struct mt_node *a,
                           struct mt_node *b, struct mt_node *c)
{
    struct mt_node *node = made(graph, MT_OP_NEW, ne, a, b);
    node->sources[2] = c;
    return node;
}

struct mt_node *mt_op_like(struct mt_graph *graph, struct mt_node *a)
{
    struct mt_node *node = mt_node_new(graph, MT_OP_NEW, (enum mt_graph_type)a->type, a->ne);
    node->sources[0] = a;
    return node;
}

struct mt_node *mt_op_cont(struct mt_graph *graph, struct mt_node *a, uint64_t ne0, uint64_t ne1,
                           uint64_t ne2)
{
    return made(graph, MT_OP_NEW, (uint64_t[4]){ne0, ne1, ne2, 1}, a, NULL);
}

struct mt_node *mt_op_repeat(struct mt_graph *graph, struct mt_node *a, uint64_t ne0, uint64_t ne1,
                             uint64_t ne2, uint64_t ne3)
{
    return made(graph, MT_OP_NEW, (uint64_t[4]){ne0, ne1, ne2, ne3}, a, NULL);
}

struct mt_node *mt_op_sum_rows(struct mt_graph *graph, struct mt_node *a)
{
    const uint64_t ne[4] = {1, a->ne[1], a->ne[2], a->ne[3]};
    return mt_node_of_kind(made(graph, MT_OP_NEW, ne, a, NULL), MT_KIND_SUM_ROWS);
}

struct mt_node *mt_op_top_k(struct mt_graph *graph, struct mt_node *a, uint64_t k)
{
    struct mt_node *order = mt_node_new(graph, MT_OP_NEW, MT_TYPE_I32, a->ne);
    order->sources[0] = a;
    order->kind = MT_KIND_ARGSORT;
    return mt_op_columns(graph, order, k);
}

struct mt_node *mt_op_flash_attention(struct mt_graph *graph, struct mt_node *q, struct mt_node *k,
                                      struct mt_node *v, struct mt_node *mask,
                                      struct mt_node *sinks)
{
    const uint64_t ne[4] = {v->ne[0], q->ne[2], q->ne[1], q->ne[3]};
    struct mt_node *node = made(graph, MT_OP_FLASH_ATTENTION, ne, q, k);
    node->sources[2] = v;
    node->sources[3] = mask;
    node->sources[4] = sinks;
    return node;
}

struct mt_node *mt_op_copy(struct mt_graph *graph, struct mt_node *from, struct mt_node *to)
{
    struct mt_node *node = looking_at(graph, MT_OP_STORE, to, to->ne, to->nb);
    node->sources[0] = from;
    node->sources[1] = to;
    return node;
}

struct mt_node *mt_op_set_rows(struct mt_graph *graph, struct mt_node *to, struct mt_node *from,
                               struct mt_node *rows)
{
    struct mt_node *node = looking_at(graph, MT_OP_STORE, to, to->ne, to->nb);
    node->sources[0] = from;
    node->sources[1] = rows;
    node->sources[2] = to;
    return node;
}

struct mt_node *mt_op_store(struct mt_graph *graph, struct mt_node *to, struct mt_node *from)
{
    struct mt_node *node = looking_at(graph, MT_OP_STORE, to, to->ne, to->nb);
    node->sources[0] = to;
    node->sources[1] = from;
    return node;
}
