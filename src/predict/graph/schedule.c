/* SPDX-License-Identifier: MIT */
/* Replays how ggml's scheduler places operations on backends, and what it copies between them.
 *
 * Work follows its weights; what has none follows its neighbours; a run of operations on one
 * backend is a split, and what a split reads from elsewhere is copied at its start. */
#include <string.h>

#include <memtally/error_code.h>

#include "base/invariant.h"
#include "fused.h"

struct split {
    size_t start;
    size_t end;
    int backend;
    struct mt_node_list inputs;
};

struct scheduler {
    struct mt_graph *graph;
    const struct mt_graph_machine *machine;
    struct split *splits;
    size_t n_splits;
    size_t splits_capacity;
    struct mt_node_list inputs; /* of the graph, that are kept in several copies */
    int host;
    int failed;
};

static int is_weight(const struct mt_node *node)
{
    return node->flags & MT_NODE_WEIGHT;
}

static uint64_t rows_of_work(const struct mt_node *node)
{
    switch (node->op) {
    case MT_OP_GET_ROWS:
        return 0;
    case MT_OP_MUL_MAT:
        return node->ne[1];
    case MT_OP_MUL_MAT_ID:
    case MT_OP_ROPE:
        return node->ne[2];
    default:
        return node->ne[1] * node->ne[2] * node->ne[3];
    }
}

/* The backend that where the operands lie asks for, or none. */
static int backend_of_operands(const struct scheduler *s, const struct mt_node *node)
{
    if (node->view_of && node->view_of->flags & MT_NODE_EXTERNAL)
        return node->view_of->backend;
    if (node->flags & MT_NODE_INPUT)
        return s->host;
    if (node->op == MT_OP_ROPE || node->op == MT_OP_FLASH_ATTENTION)
        return MT_UNPLACED;
    for (int i = 0; i < MT_GRAPH_SOURCES_MAX; i++) {
        const struct mt_node *source = node->sources[i];
        if (!source || !is_weight(source))
            continue;
        int moves = source->backend == s->host && s->machine->n_devices &&
                    rows_of_work(node) >= s->machine->offload_batch;
        return moves ? 0 : source->backend;
    }
    return MT_UNPLACED;
}

static void place_by_operands(const struct scheduler *s, const struct mt_node_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i]->backend == MT_UNPLACED)
            list->at[i]->backend = (int8_t)backend_of_operands(s, list->at[i]);
}

/* Gives nodes without a place that of the one before them, in either direction. The host's is not
 * handed on while `skip_host`. */
static void spread(const struct scheduler *s, int backwards, int skip_host)
{
    const struct mt_node_list *nodes = &s->graph->nodes;
    int current = MT_UNPLACED;
    for (size_t i = 0; i < nodes->n; i++) {
        struct mt_node *node = nodes->at[backwards ? nodes->n - 1 - i : i];
        if (node->op == MT_OP_VIEW)
            continue;
        if (node->backend != MT_UNPLACED)
            current = skip_host && node->backend == s->host ? MT_UNPLACED : node->backend;
        else if (current != MT_UNPLACED)
            node->backend = (int8_t)current;
    }
}

static void place_the_rest(const struct scheduler *s)
{
    const struct mt_node_list *nodes = &s->graph->nodes;
    for (size_t i = 0; i < nodes->n; i++) {
        struct mt_node *node = nodes->at[i];
        if (node->view_of && node->backend == MT_UNPLACED)
            node->backend = node->view_of->backend;
        for (int j = 0; j < MT_GRAPH_SOURCES_MAX; j++) {
            struct mt_node *source = node->sources[j];
            if (source && source->backend == MT_UNPLACED)
                source->backend = source->view_of ? source->view_of->backend : node->backend;
        }
        if (node->backend == MT_UNPLACED)
            node->backend = 0;
    }
}

static void start_split(struct scheduler *s, size_t at, int backend)
{
    if (s->n_splits == s->splits_capacity) {
        size_t capacity = s->splits_capacity ? s->splits_capacity * 2 : 64;
        struct split *splits = mt_arena_array(s->graph->arena, capacity, sizeof *splits);
        if (!splits) {
            s->failed = 1;
            return;
        }
        if (s->n_splits)
            memcpy(splits, s->splits, s->n_splits * sizeof *splits);
        s->splits = splits;
        s->splits_capacity = capacity;
    }
    s->splits[s->n_splits++] = (struct split){.start = at, .backend = backend};
}

static struct mt_node **copies_on(struct scheduler *s, struct mt_node *node, int backend)
{
    unsigned n = s->machine->n_copies;
    if (!node->copies)
        node->copies =
            mt_arena_array(s->graph->arena, (size_t)(s->host + 1) * n, sizeof(struct mt_node *));
    if (!node->copies)
        s->failed = 1;
    return node->copies ? node->copies + (size_t)backend * n : NULL;
}

static void add(struct scheduler *s, struct mt_node_list *list, struct mt_node *node)
{
    if (mt_node_list_add(s->graph->arena, list, node) < 0)
        s->failed = 1;
}

/* The copies of an input that are filled while earlier ones are still read. The first of them is
 * the input itself. */
static void keep_copies(struct scheduler *s, struct mt_node *input)
{
    struct mt_node **copies = copies_on(s, input, input->backend);
    if (!copies || copies[0])
        return;
    for (unsigned c = 0; c < s->machine->n_copies; c++) {
        copies[c] = c ? mt_node_twin(s->graph, input) : input;
        copies[c]->flags |= MT_NODE_INPUT | MT_NODE_OUTPUT;
    }
    add(s, &s->inputs, input);
}

static struct mt_node *copy_for(struct scheduler *s, struct split *split, struct mt_node *source)
{
    struct mt_node **copies = copies_on(s, source, split->backend);
    if (!copies)
        return source;
    if (!copies[0]) {
        for (unsigned c = 0; c < s->machine->n_copies; c++) {
            copies[c] = mt_node_twin(s->graph, source);
            if (s->machine->n_copies > 1)
                copies[c]->flags |= MT_NODE_INPUT | MT_NODE_OUTPUT;
        }
        add(s, &split->inputs, source);
    }
    return copies[0];
}

/* Weights from elsewhere begin a new split once one has inputs: what was copied before is then free
 * again. */
static int wants_new_split(const struct split *split, const struct mt_node *node)
{
    if (node->backend != split->backend)
        return 1;
    if (!split->inputs.n)
        return 0;
    for (int i = 0; i < MT_GRAPH_SOURCES_MAX; i++) {
        const struct mt_node *source = node->sources[i];
        if (source && is_weight(source) && source->backend != split->backend)
            return 1;
    }
    return 0;
}

static void read_from_copies(struct scheduler *s, struct split *split, struct mt_node *node)
{
    for (int i = 0; i < MT_GRAPH_SOURCES_MAX && !s->failed; i++) {
        struct mt_node *source = node->sources[i];
        if (!source)
            continue;
        if (source->flags & MT_NODE_INPUT && s->machine->n_copies > 1 && source->op == MT_OP_NONE)
            keep_copies(s, source);
        if (source->backend != split->backend)
            node->sources[i] = copy_for(s, split, source);
    }
}

static void make_splits(struct scheduler *s)
{
    const struct mt_node_list *nodes = &s->graph->nodes;
    for (size_t i = 0; i < nodes->n && !s->failed; i++) {
        struct mt_node *node = nodes->at[i];
        if (node->op == MT_OP_VIEW)
            continue;
        if (!s->n_splits)
            start_split(s, 0, node->backend);
        else if (wants_new_split(s->splits + s->n_splits - 1, node)) {
            s->splits[s->n_splits - 1].end = i;
            start_split(s, i, node->backend);
        }
        if (!s->failed)
            read_from_copies(s, s->splits + s->n_splits - 1, node);
    }
    if (s->n_splits)
        s->splits[s->n_splits - 1].end = nodes->n;
    const struct mt_node_list *leafs = &s->graph->leafs;
    if (s->machine->n_copies > 1 && s->machine->copies_inputs_unused)
        for (size_t i = 0; i < leafs->n; i++)
            if (leafs->at[i]->flags & MT_NODE_INPUT)
                keep_copies(s, leafs->at[i]);
}

static void emit(struct scheduler *s, struct mt_node_list *list, int8_t *backends, int backend,
                 struct mt_node *node)
{
    backends[list->n] = (int8_t)backend;
    add(s, list, node);
}

/* A look at tensors keeps them alive until then. It has as many sources as a node may have. */
static void emit_kept(struct scheduler *s, struct mt_schedule *out, const struct mt_node *node)
{
    const struct mt_node_list *kept = node->kept;
    for (size_t i = 0; kept && i < kept->n; i += MT_GRAPH_SOURCES_MAX) {
        struct mt_node *look = mt_node_twin(s->graph, kept->at[i]);
        look->view_of = kept->at[i]->view_of ? kept->at[i]->view_of : kept->at[i];
        for (size_t j = 0; j < MT_GRAPH_SOURCES_MAX && i + j < kept->n; j++)
            look->sources[j] = kept->at[i + j];
        emit(s, &out->nodes, out->node_backends, node->backend, look);
    }
}

static void emit_nodes(struct scheduler *s, struct mt_schedule *out)
{
    for (size_t i = 0; i < s->n_splits && !s->failed; i++) {
        struct split *split = s->splits + i;
        for (size_t j = 0; j < split->inputs.n; j++) {
            struct mt_node *input = split->inputs.at[j];
            /* A look at the input keeps it alive until it has been copied. */
            struct mt_node *look = mt_node_twin(s->graph, input);
            look->view_of = input->view_of ? input->view_of : input;
            look->sources[0] = input;
            emit(s, &out->nodes, out->node_backends, input->backend, look);
            emit(s, &out->nodes, out->node_backends, split->backend,
                 copies_on(s, input, split->backend)[0]);
        }
        for (size_t j = split->start; j < split->end; j++) {
            struct mt_node *node = s->graph->nodes.at[j];
            emit(s, &out->nodes, out->node_backends, node->backend, node);
            emit_kept(s, out, node);
        }
    }
}

static void emit_copies(struct scheduler *s, struct mt_schedule *out, struct mt_node *input,
                        int backend)
{
    for (unsigned c = 0; c < s->machine->n_copies; c++)
        emit(s, &out->leafs, out->leaf_backends, backend, copies_on(s, input, backend)[c]);
}

static void emit_leafs(struct scheduler *s, struct mt_schedule *out)
{
    if (s->machine->n_copies > 1) {
        for (size_t i = 0; i < s->inputs.n; i++)
            emit_copies(s, out, s->inputs.at[i], s->inputs.at[i]->backend);
        for (size_t i = 0; i < s->n_splits; i++)
            for (size_t j = 0; j < s->splits[i].inputs.n; j++)
                emit_copies(s, out, s->splits[i].inputs.at[j], s->splits[i].backend);
    }
    const struct mt_node_list *leafs = &s->graph->leafs;
    for (size_t i = 0; i < leafs->n; i++)
        emit(s, &out->leafs, out->leaf_backends, leafs->at[i]->backend, leafs->at[i]);
}

static int make_room(struct scheduler *s, struct mt_schedule *out)
{
    size_t inputs = s->inputs.n;
    for (size_t i = 0; i < s->n_splits; i++)
        inputs += s->splits[i].inputs.n;
    size_t n = s->graph->nodes.n + s->graph->leafs.n + inputs * 2 * s->machine->n_copies;
    for (size_t i = 0; i < s->graph->nodes.n; i++)
        n += s->graph->nodes.at[i]->kept ? s->graph->nodes.at[i]->kept->n : 0;
    out->node_backends = mt_arena_alloc(s->graph->arena, n);
    out->leaf_backends = mt_arena_alloc(s->graph->arena, n);
    return out->node_backends && out->leaf_backends ? 0 : MT_ENOMEM;
}

int mt_graph_schedule(struct mt_graph *graph, const struct mt_graph_machine *machine,
                      struct mt_schedule *schedule)
{
    struct scheduler s = {.graph = graph, .machine = machine, .host = machine->n_devices};
    *schedule = (struct mt_schedule){0};
    if (graph->failed)
        return MT_ENOMEM;
    place_by_operands(&s, &graph->leafs);
    place_by_operands(&s, &graph->nodes);
    spread(&s, 0, 1);
    spread(&s, 1, 1);
    spread(&s, 0, 0);
    spread(&s, 1, 0);
    place_the_rest(&s);
    for (size_t i = 0; i < graph->leafs.n; i++)
        if (graph->leafs.at[i]->backend == MT_UNPLACED)
            graph->leafs.at[i]->backend = (int8_t)s.host;
    make_splits(&s);
    for (size_t i = 0; i < s.n_splits && machine->keeps; i++)
        if (s.splits[i].backend != s.host)
            mt_graph_keep_fused(graph, s.splits[i].start, s.splits[i].end, machine->keeps);
    if (s.failed || make_room(&s, schedule) < 0)
        return MT_ENOMEM;
    emit_nodes(&s, schedule);
    emit_leafs(&s, schedule);
    return s.failed || graph->failed ? MT_ENOMEM : 0;
}

int mt_graph_reserve(struct mt_graph *graph, const struct mt_graph_machine *machine,
                     struct mt_graph_buffer *buffers)
{
    struct mt_schedule schedule;
    int status = mt_graph_schedule(graph, machine, &schedule);
    if (status)
        return status;
    MT_HOLDS(mt_schedule_is_valid(&schedule, machine));
    status = mt_graph_allocate(graph, machine, &schedule, buffers);
    MT_HOLDS(status || mt_graph_buffers_are_valid(buffers, (size_t)machine->n_devices + 1));
    return status;
}
