/* SPDX-License-Identifier: MIT */
/* Shows a graph of ggml's to the patterns of fused operations, and asks the scheduler to keep what
 * they want kept (ggml-cuda's graph_optimize). */
#include <dlfcn.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "build.h"
#include "engine/fused.h"
#include "world.h"

struct keeper {
    struct pretend_ggml *ggml;
    struct ggml_graph *graph;
    const struct ggml_optimize *optimize;
};

static const struct keeper *keeper_of(const struct mt_fused_graph *fused)
{
    return fused->context;
}

static void *at(const struct mt_fused_graph *fused, size_t i)
{
    return keeper_of(fused)->graph->nodes[i];
}

/* A softmax with a scale or a bias is none that is looked for. */
static enum mt_kind kind_of_soft_max(const struct ggml_tensor *node)
{
    float scale, bias;
    memcpy(&scale, &node->op_params[0], sizeof scale);
    memcpy(&bias, &node->op_params[1], sizeof bias);
    return scale < 1.0f || scale > 1.0f || bias < 0.0f || bias > 0.0f ? MT_KIND_OTHER
                                                                      : MT_KIND_SOFT_MAX;
}

static enum mt_kind kind_of_unary(const char *name)
{
    if (strcmp(name, "SIGMOID") == 0)
        return MT_KIND_SIGMOID;
    return strcmp(name, "SOFTPLUS") == 0 ? MT_KIND_SOFTPLUS : MT_KIND_OTHER;
}

/* Those that are fused, with the gate first. */
static enum mt_kind kind_of_gated(const struct ggml_tensor *node, const char *name)
{
    static const char *const known[] = {"SWIGLU", "GEGLU", "SWIGLU_OAI", "SWIGLU_CLAMP"};
    for (size_t i = 0; node->op_params[1] == 0 && i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0)
            return MT_KIND_GLU;
    return MT_KIND_OTHER;
}

static enum mt_kind kind(const struct mt_fused_graph *fused, const void *of)
{
    static const uint8_t kinds[OP_OTHER + 1] = {
        [OP_SQRT] = MT_KIND_SQRT,         [OP_RESHAPE] = MT_KIND_RESHAPE,
        [OP_VIEW] = MT_KIND_VIEW,         [OP_ADD] = MT_KIND_ADD,
        [OP_MUL] = MT_KIND_MUL,           [OP_DIV] = MT_KIND_DIV,
        [OP_CLAMP] = MT_KIND_CLAMP,       [OP_SCALE] = MT_KIND_SCALE,
        [OP_ARGSORT] = MT_KIND_ARGSORT,   [OP_SUM_ROWS] = MT_KIND_SUM_ROWS,
        [OP_MUL_MAT] = MT_KIND_MUL_MAT,   [OP_GET_ROWS] = MT_KIND_GET_ROWS,
        [OP_MUL_MAT_ID] = MT_KIND_EXPERTS};
    struct pretend_ggml *ggml = keeper_of(fused)->ggml;
    const struct ggml_tensor *node = of;
    enum pretend_op op = pretend_op_of(ggml, node);
    const char *name = op == OP_UNARY || op == OP_GLU ? ggml->op_desc(node) : NULL;
    if (op == OP_SOFT_MAX)
        return kind_of_soft_max(node);
    if (op == OP_UNARY)
        return name ? kind_of_unary(name) : MT_KIND_OTHER;
    if (op == OP_GLU)
        return name ? kind_of_gated(node, name) : MT_KIND_OTHER;
    return (enum mt_kind)kinds[op];
}

static void read_node(const struct mt_fused_graph *fused, const void *of,
                      struct mt_fused_node *read)
{
    struct pretend_ggml *ggml = keeper_of(fused)->ggml;
    const struct ggml_tensor *node = of;
    *read = (struct mt_fused_node){
        .view_of = node->view_src,
        .view_offset = node->view_offs,
        .type = ggml->type_name(node->type),
        .variant = (uint64_t)(uint32_t)node->op_params[0] << 32 | (uint32_t)node->op_params[3],
        .is_f32 = pretend_types_of(ggml, node) == TYPES(F32),
        .is_contiguous = pretend_is_whole_from(ggml, node, 0),
        .is_leaf = pretend_op_of(ggml, node) == OP_NONE,
        .is_quantised_weight = node->buffer && pretend_type_of(ggml, node->type).is_quantized};
    for (int i = 0; i < GGML_SOURCES; i++)
        read->sources[i] = node->src[i];
    for (int i = 0; i < GGML_DIMS; i++) {
        read->ne[i] = (uint64_t)node->ne[i];
        read->nb[i] = node->nb[i];
    }
}

/* ggml itself says so; old builds cannot, and fuse nothing. */
static int can_fuse(const struct mt_fused_graph *fused, const size_t *numbers, size_t n,
                    const size_t *outputs, size_t n_outputs)
{
    const struct keeper *k = keeper_of(fused);
    int nodes[MT_FUSED_NODES_MAX], ops[MT_FUSED_NODES_MAX], left[2];
    if (!k->ggml->can_fuse || n > MT_FUSED_NODES_MAX || n_outputs > 2)
        return 0;
    for (size_t i = 0; i < n; i++) {
        nodes[i] = (int)numbers[i];
        ops[i] = k->graph->nodes[numbers[i]]->op;
    }
    for (size_t i = 0; i < n_outputs; i++)
        left[i] = (int)outputs[i];
    return k->ggml->can_fuse(k->graph, nodes, (int)n, ops, left, (int)n_outputs);
}

static void keep(const struct mt_fused_graph *fused, void *tensor, void *until)
{
    const struct ggml_optimize *optimize = keeper_of(fused)->optimize;
    optimize->add_alloc_dep(optimize->context, tensor, until);
}

static void move_three(const struct mt_fused_graph *fused, size_t to, size_t from)
{
    struct ggml_tensor **nodes = keeper_of(fused)->graph->nodes, *moved[3];
    memcpy(moved, nodes + from, sizeof moved);
    memmove(nodes + to + 3, nodes + to, (from - to) * sizeof *nodes);
    memcpy(nodes + to, moved, sizeof moved);
}

/* In version 2 older builds pass no third argument, and there is anything in its place. */
static int is_given(const struct pretend_world *world, const struct ggml_optimize *optimize,
                    struct ggml_optimize *copy)
{
    Dl_info of_ggml, of_function;
    struct iovec to = {copy, sizeof *copy}, from = {(void *)(uintptr_t)optimize, sizeof *copy};
    const void *known, *function;
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != (ssize_t)sizeof *copy)
        return 0;
    memcpy(&known, &world->ggml.buffer_init, sizeof known);
    memcpy(&function, &copy->add_alloc_dep, sizeof function);
    return dladdr(known, &of_ggml) && dladdr(function, &of_function) &&
           of_ggml.dli_fbase == of_function.dli_fbase;
}

void pretend_graph_optimize(struct ggml_backend *backend, struct ggml_graph *graph,
                            struct ggml_optimize *optimize)
{
    struct pretend_world *world = device_of(backend->device)->world;
    struct ggml_optimize given;
    if (graph->n_nodes <= 0 || !is_given(world, optimize, &given))
        return;
    struct keeper keeper = {&world->ggml, graph, &given};
    /* The scheduler's graph goes on behind the split: the next node can be looked at. */
    struct mt_fused_graph fused = {.context = &keeper,
                                   .n = (size_t)graph->n_nodes,
                                   .n_to_end = (size_t)graph->n_nodes + 1,
                                   .at = at,
                                   .kind = kind,
                                   .read = read_node,
                                   .can_fuse = can_fuse};
    if (world->account->builds.doubts)
        pretend_meet_doubt(world->account, mt_fused_keep(&fused, world->account->builds.doubts));
    fused.keep = keep;
    fused.move_three = move_three;
    mt_fused_keep(&fused, rules_of(world)->graph_dependencies);
}
