/* SPDX-License-Identifier: MIT */
/* Graphs of tensors: making them, and putting them into the order in which they are computed. */
#include "graph.h"

#include <string.h>

#include "model/ggml_type.h"

#define SLAB_NODES 128
/* No model that an engine loads comes near; a damaged file must not take minutes. */
#define NODES_MAX 400000

#define SIZES(NAME, number, name, elements, bytes)                                                 \
    BLOCK_##NAME = (elements), BYTES_##NAME = (bytes),
enum { MT_GGML_TYPE_LIST(SIZES) };
#undef SIZES

#define TYPE(NAME)                                                                                 \
    [MT_TYPE_##NAME] = {.number = MT_GGML_##NAME, .block = BLOCK_##NAME, .bytes = BYTES_##NAME}
static const struct {
    uint32_t number;
    uint16_t block;
    uint16_t bytes;
} types[MT_TYPE_COUNT] = {TYPE(F32),  TYPE(F16),  TYPE(BF16), TYPE(I32),  TYPE(I64),   TYPE(Q8_0),
                          TYPE(Q5_1), TYPE(Q5_0), TYPE(Q4_1), TYPE(Q4_0), TYPE(IQ4_NL)};
#undef TYPE

enum mt_graph_type mt_graph_type_of(const char *name)
{
    const struct mt_ggml_type *type = mt_ggml_type_by_name(name);
    for (int i = 0; type && i < MT_TYPE_COUNT; i++)
        if (types[i].number == type->number)
            return (enum mt_graph_type)i;
    return MT_TYPE_F32;
}

uint64_t mt_graph_row_bytes(enum mt_graph_type type, uint64_t n)
{
    return n / types[type].block * types[type].bytes;
}

void mt_graph_init(struct mt_graph *graph, struct mt_arena *arena)
{
    *graph = (struct mt_graph){.arena = arena};
}

int mt_node_list_add(struct mt_arena *arena, struct mt_node_list *list, struct mt_node *node)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 512;
        struct mt_node **at = mt_arena_array(arena, capacity, sizeof *at);
        if (!at)
            return -1;
        if (list->n)
            memcpy(at, list->at, list->n * sizeof *at);
        list->at = at;
        list->capacity = capacity;
    }
    list->at[list->n++] = node;
    return 0;
}

static struct mt_node *blank(struct mt_graph *graph)
{
    if (!graph->slab_left && graph->n_made < NODES_MAX) {
        graph->slab = mt_arena_array(graph->arena, SLAB_NODES, sizeof *graph->slab);
        graph->slab_left = graph->slab ? SLAB_NODES : 0;
    }
    struct mt_node *node = &graph->spare;
    if (graph->slab_left) {
        node = graph->slab++;
        graph->slab_left--;
        graph->n_made++;
    } else {
        graph->failed = 1;
        *node = (struct mt_node){0};
    }
    node->backend = MT_UNPLACED;
    node->part = graph->part;
    return node;
}

void mt_node_measure(struct mt_node *node)
{
    node->bytes = 0;
    if (!mt_node_elements(node))
        return;
    uint64_t block = types[node->type].block;
    node->bytes = block == 1 ? types[node->type].bytes + (node->ne[0] - 1) * node->nb[0]
                             : node->ne[0] * node->nb[0] / block;
    for (int i = 1; i < 4; i++)
        node->bytes += (node->ne[i] - 1) * node->nb[i];
}

static void lay_out(struct mt_node *node)
{
    node->nb[0] = types[node->type].bytes;
    node->nb[1] = mt_graph_row_bytes(node->type, node->ne[0]);
    node->nb[2] = node->nb[1] * node->ne[1];
    node->nb[3] = node->nb[2] * node->ne[2];
    node->quantised = types[node->type].block > 1;
    mt_node_measure(node);
}

struct mt_node *mt_node_new(struct mt_graph *graph, enum mt_op op, enum mt_graph_type type,
                            const uint64_t ne[4])
{
    struct mt_node *node = blank(graph);
    node->op = (uint8_t)op;
    node->type = (uint8_t)type;
    memcpy(node->ne, ne, sizeof node->ne);
    lay_out(node);
    return node;
}

struct mt_node *mt_node_twin(struct mt_graph *graph, const struct mt_node *node)
{
    struct mt_node *twin = blank(graph);
    twin->op = MT_OP_NONE;
    twin->type = node->type;
    twin->quantised = node->quantised;
    memcpy(twin->ne, node->ne, sizeof twin->ne);
    memcpy(twin->nb, node->nb, sizeof twin->nb);
    twin->part = node->part;
    twin->bytes = node->bytes;
    return twin;
}

struct mt_node *mt_op_input(struct mt_graph *graph, enum mt_graph_type type, const uint64_t ne[4])
{
    struct mt_node *node = mt_node_new(graph, MT_OP_NONE, type, ne);
    node->flags = MT_NODE_INPUT;
    return node;
}

struct mt_node *mt_op_external(struct mt_graph *graph, enum mt_graph_type type,
                               const uint64_t ne[4], int backend)
{
    struct mt_node *node = mt_node_new(graph, MT_OP_NONE, type, ne);
    node->flags = MT_NODE_EXTERNAL;
    node->backend = (int8_t)backend;
    return node;
}

struct mt_node *mt_node_of_kind(struct mt_node *node, enum mt_kind kind)
{
    node->kind = (uint8_t)kind;
    return node;
}

uint64_t mt_node_elements(const struct mt_node *node)
{
    return node->ne[0] * node->ne[1] * node->ne[2] * node->ne[3];
}

int mt_node_is_contiguous(const struct mt_node *node)
{
    uint64_t next = types[node->type].bytes;
    for (int i = 0; i < 4; i++) {
        if (node->ne[i] != 1 && node->nb[i] != next)
            return 0;
        next = i ? next * node->ne[i] : mt_graph_row_bytes(node->type, node->ne[0]);
    }
    return 1;
}

static int visit(struct mt_graph *graph, struct mt_node *node)
{
    if (node->visited)
        return 0;
    node->visited = 1;
    for (int i = 0; i < MT_GRAPH_SOURCES_MAX; i++) {
        if (!node->sources[i])
            continue;
        node->sources[i]->uses++;
        if (visit(graph, node->sources[i]) < 0)
            return -1;
    }
    return mt_node_list_add(graph->arena, node->op == MT_OP_NONE ? &graph->leafs : &graph->nodes,
                            node);
}

void mt_graph_expand(struct mt_graph *graph, struct mt_node *node)
{
    if (!graph->failed && visit(graph, node) < 0)
        graph->failed = 1;
}
