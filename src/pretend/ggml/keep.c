/* SPDX-License-Identifier: MIT */
/* What the fused operations of expert layers keep allocated (ggml-cuda's graph_optimize).
 *
 * A fused kernel reads its inputs while it writes its output. So the device asks the scheduler to
 * keep them until the last node of the fused ones: the allocator then cannot give their memory to
 * what lies between, and a plan grows. Only what is done whatever the batch is done here. */
#include <dlfcn.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "build.h"
#include "world.h"

#define NODES_OF_TOPK      13
#define EXPERTS_MAX        15 /* of a fused weighted sum */
#define EXPERTS_OF_TOPK    512
#define NODES_OF_REDUCTION (2 * EXPERTS_MAX + 1)

struct keeper {
    const struct pretend_world *world;
    struct pretend_ggml *ggml;
    struct ggml_graph *graph;
    const struct ggml_optimize *optimize;
    int only_looks; /* keeps nothing and moves nothing */
};

static void keep(const struct keeper *k, struct ggml_tensor *tensor, struct ggml_tensor *until)
{
    if (!k->only_looks)
        k->optimize->add_alloc_dep(k->optimize->context, tensor, until);
}

static enum pretend_op op_at(const struct keeper *k, int at)
{
    return at >= 0 && at < k->graph->n_nodes ? pretend_op_of(k->ggml, k->graph->nodes[at])
                                             : OP_OTHER;
}

/* Whether the node is such an operation, on what the node before it made. */
static int follows(const struct keeper *k, int at, enum pretend_op op)
{
    return op_at(k, at) == op && k->graph->nodes[at]->src[0] == k->graph->nodes[at - 1];
}

static int is_named(const struct keeper *k, const struct ggml_tensor *tensor, const char *name)
{
    const char *desc = k->ggml->op_desc(tensor);
    return desc && strcmp(desc, name) == 0;
}

static int is_whole(const struct keeper *k, const struct ggml_tensor *tensor)
{
    return pretend_is_whole_from(k->ggml, tensor, 0);
}

static int is_f32(const struct keeper *k, const struct ggml_tensor *tensor)
{
    return pretend_types_of(k->ggml, tensor) == TYPES(F32);
}

static int have_one_shape(const struct ggml_tensor *a, const struct ggml_tensor *b)
{
    return memcmp(a->ne, b->ne, sizeof a->ne) == 0;
}

/* Whether ggml itself says that `count` nodes from `at` on can be made into one. */
static int can_fuse(const struct keeper *k, int at, int count, const int *outputs, int n_outputs)
{
    int nodes[NODES_OF_REDUCTION], ops[NODES_OF_REDUCTION];
    if (!k->ggml->can_fuse || count > NODES_OF_REDUCTION || at + count > k->graph->n_nodes)
        return 0;
    for (int i = 0; i < count; i++) {
        nodes[i] = at + i;
        ops[i] = k->graph->nodes[at + i]->op;
    }
    return k->ggml->can_fuse(k->graph, nodes, count, ops, outputs, n_outputs);
}

/* Choosing experts. */

struct topk {
    int probabilities; /* the last node of the gate's function */
    int view;          /* of the chosen numbers */
    int count;         /* of nodes in all */
};

static int match_gate(const struct keeper *k, int at, int *probabilities)
{
    const struct ggml_tensor *node = k->graph->nodes[at];
    *probabilities = at;
    if (op_at(k, at) == OP_SOFT_MAX)
        return 1;
    if (op_at(k, at) != OP_UNARY)
        return 0;
    if (is_named(k, node, "SIGMOID"))
        return 1;
    *probabilities = at + 1;
    return is_named(k, node, "SOFTPLUS") && follows(k, at + 1, OP_SQRT);
}

/* The number of nodes that normalise the chosen weights, 0 where they are not normalised. */
static int match_norm(const struct keeper *k, int at)
{
    if (!follows(k, at, OP_RESHAPE) || !follows(k, at + 1, OP_SUM_ROWS) ||
        !follows(k, at + 2, OP_CLAMP) || op_at(k, at + 3) != OP_DIV ||
        !follows(k, at + 4, OP_RESHAPE))
        return 0;
    const struct ggml_tensor *quotient = k->graph->nodes[at + 3];
    return quotient->src[1] == k->graph->nodes[at + 2] && quotient->src[0] == k->graph->nodes[at]
               ? 5
               : 0;
}

static int match_topk(const struct keeper *k, int at, struct topk *topk)
{
    struct ggml_tensor **nodes = k->graph->nodes;
    if (!match_gate(k, at, &topk->probabilities))
        return 0;
    int next = topk->probabilities + 1;
    if (!follows(k, next, OP_RESHAPE))
        return 0;
    const struct ggml_tensor *sorted = nodes[topk->probabilities];
    const struct ggml_tensor *reshaped = nodes[next++];
    if (op_at(k, next) == OP_ADD && nodes[next]->src[0] == sorted)
        sorted = nodes[next++];
    if (op_at(k, next) != OP_ARGSORT || nodes[next]->src[0] != sorted)
        return 0;
    topk->view = next + 1;
    if (!follows(k, next + 1, OP_VIEW) || op_at(k, next + 2) != OP_GET_ROWS ||
        nodes[next + 2]->src[0] != reshaped || nodes[next + 2]->src[1] != nodes[next + 1])
        return 0;
    next += 3;
    next += match_norm(k, next);
    if (next < k->graph->n_nodes && follows(k, next, OP_SCALE))
        next++;
    topk->count = next - at;
    return 1;
}

static int is_plain_soft_max(const struct keeper *k, const struct ggml_tensor *node)
{
    float scale, bias;
    memcpy(&scale, &node->op_params[0], sizeof scale);
    memcpy(&bias, &node->op_params[1], sizeof bias);
    return is_whole(k, node->src[0]) && !(scale < 1.0f || scale > 1.0f) &&
           !(bias < 0.0f || bias > 0.0f) && !node->src[1] && !node->src[2];
}

/* Whether there is a kernel for so many experts. */
static int has_kernel(const struct keeper *k, int at, const struct topk *topk)
{
    const struct ggml_tensor *node = k->graph->nodes[at];
    const struct ggml_tensor *ids = k->graph->nodes[topk->view];
    const struct ggml_tensor *weights = k->graph->nodes[at + topk->count - 1];
    size_t experts = ids->nb[0] ? ids->nb[1] / ids->nb[0] : 0;
    int is_known = ((experts & (experts - 1)) == 0 && experts <= EXPERTS_OF_TOPK) ||
                   experts == 288 || experts == 576;
    if (!is_known || !is_whole(k, node->src[0]) || !is_whole(k, weights))
        return 0;
    return op_at(k, at) != OP_SOFT_MAX || is_plain_soft_max(k, node);
}

/* Keeps the nodes and all that they read until the node after them; returns how many they are. */
static int keep_topk(const struct keeper *k, int at)
{
    struct topk topk;
    if (!match_topk(k, at, &topk) || topk.count > NODES_OF_TOPK)
        return 0;
    int outputs[] = {topk.view, at + topk.count - 1};
    if (!can_fuse(k, at, topk.count, outputs, 2) || !has_kernel(k, at, &topk))
        return 0;
    /* The node may be the first of the next split: the scheduler's graph goes on there. */
    struct ggml_tensor *until = k->graph->nodes[at + topk.count];
    for (int i = at; until && i < at + topk.count; i++) {
        struct ggml_tensor *node = k->graph->nodes[i];
        keep(k, node, until);
        for (int j = 0; j < GGML_SOURCES; j++)
            if (node->src[j])
                keep(k, node->src[j], until);
    }
    return topk.count;
}

/* Weighing what the chosen experts made, and adding it up. */

static int is_expert_weight(const struct keeper *k, const struct ggml_tensor *product,
                            const struct ggml_tensor *tensor)
{
    return tensor && is_f32(k, tensor) && is_whole(k, tensor) && tensor->ne[0] == 1 &&
           memcmp(&tensor->ne[1], &product->ne[1], 3 * sizeof tensor->ne[1]) == 0;
}

/* Tells the factors of a product of experts and weights. */
static int split_product(const struct keeper *k, const struct ggml_tensor *product,
                         struct ggml_tensor **experts, struct ggml_tensor **weights)
{
    for (int i = 0; i < 2; i++) {
        struct ggml_tensor *a = product->src[i], *b = product->src[1 - i];
        if (a && is_f32(k, a) && is_whole(k, a) && have_one_shape(a, product) &&
            is_expert_weight(k, product, b)) {
            *experts = a;
            *weights = b;
            return 1;
        }
    }
    return 0;
}

struct reduction {
    struct ggml_tensor *weighted; /* experts times weights */
    struct ggml_tensor *experts, *scale, *weights;
    int n_products;
    int n_experts;
    int64_t n_tokens;
};

static int match_products(const struct keeper *k, int at, struct reduction *r)
{
    struct ggml_tensor *first = k->graph->nodes[at], *second, *scaled;
    *r = (struct reduction){.weighted = first, .n_products = 1};
    if (op_at(k, at) != OP_MUL || !is_f32(k, first) || !is_whole(k, first))
        return 0;
    if (op_at(k, at + 1) == OP_MUL) {
        second = k->graph->nodes[at + 1];
        if (is_f32(k, second) && is_whole(k, second) &&
            split_product(k, second, &scaled, &r->weights) && scaled == first &&
            split_product(k, first, &r->experts, &r->scale)) {
            r->weighted = second;
            r->n_products = 2;
        }
    }
    if (r->n_products == 1) {
        r->scale = NULL;
        if (!split_product(k, first, &r->experts, &r->weights))
            return 0;
    }
    r->n_experts = (int)r->weighted->ne[1];
    r->n_tokens = r->weighted->ne[2] * r->weighted->ne[3];
    return r->weighted->ne[1] >= 2 && r->weighted->ne[1] <= EXPERTS_MAX && r->n_tokens > 0;
}

static int is_view_of_expert(const struct keeper *k, const struct reduction *r, int expert,
                             const struct ggml_tensor *view)
{
    const struct ggml_tensor *all = r->weighted;
    return expert < r->n_experts && view->src[0] == all && view->view_src == all &&
           is_f32(k, view) && view->ne[0] == all->ne[0] && view->ne[1] == r->n_tokens &&
           view->ne[2] == 1 && view->ne[3] == 1 && view->nb[0] == all->nb[0] &&
           view->nb[1] == all->nb[2] && view->view_offs == (size_t)expert * all->nb[1];
}

/* The views and sums after the products; the last sum, or NULL where they are not that. */
static struct ggml_tensor *match_sums(const struct keeper *k, int at, int count,
                                      const struct reduction *r)
{
    struct ggml_tensor *views[EXPERTS_MAX], *sum = NULL;
    int n_views = 0, n_sums = 0;
    for (int i = at; i < at + count; i++) {
        struct ggml_tensor *node = k->graph->nodes[i];
        if (op_at(k, i) == OP_VIEW) {
            if (!is_view_of_expert(k, r, n_views, node))
                return NULL;
            views[n_views++] = node;
            continue;
        }
        if (op_at(k, i) != OP_ADD || n_views < 2 || n_sums + 1 >= n_views)
            return NULL;
        if (node->src[0] != (n_sums ? sum : views[0]) || node->src[1] != views[n_sums + 1] ||
            !is_f32(k, node))
            return NULL;
        sum = node;
        n_sums++;
    }
    if (n_views != r->n_experts || n_sums != r->n_experts - 1 || !is_whole(k, sum))
        return NULL;
    return sum->ne[0] == r->weighted->ne[0] && sum->ne[1] == r->n_tokens && sum->ne[2] == 1 &&
                   sum->ne[3] == 1
               ? sum
               : NULL;
}

static int keep_reduction(const struct keeper *k, int at)
{
    struct reduction r;
    if (!match_products(k, at, &r))
        return 0;
    int count = 2 * r.n_experts + r.n_products - 1;
    if (at + count > k->graph->n_nodes)
        return 0;
    struct ggml_tensor *sum = match_sums(k, at + r.n_products, count - r.n_products, &r);
    int output = at + count - 1;
    if (!sum || !can_fuse(k, at, count, &output, 1))
        return 0;
    keep(k, r.experts, sum);
    keep(k, r.weights, sum);
    if (r.scale)
        keep(k, r.scale, sum);
    return count;
}

/* The shared expert beside the chosen ones. */

static int is_known_gate(const struct keeper *k, const struct ggml_tensor *gate)
{
    return (is_named(k, gate, "SWIGLU") || is_named(k, gate, "GEGLU") ||
            is_named(k, gate, "SWIGLU_OAI") || is_named(k, gate, "SWIGLU_CLAMP")) &&
           gate->op_params[1] == 0;
}

/* Whether two products and the gate over them are of one input and alike in their weights. */
static int is_gated_pair(const struct keeper *k, int at)
{
    const struct ggml_tensor *gated = k->graph->nodes[at + 2];
    const struct ggml_tensor *a = gated->src[0], *b = gated->src[1];
    const struct ggml_tensor *first = k->graph->nodes[at], *second = k->graph->nodes[at + 1];
    if (!((a == first && b == second) || (a == second && b == first)))
        return 0;
    return a->src[0]->type == b->src[0]->type && have_one_shape(a->src[0], b->src[0]) &&
           memcmp(a->src[0]->nb, b->src[0]->nb, sizeof a->src[0]->nb) == 0 &&
           a->src[1] == b->src[1] && a->src[2] == b->src[2] && is_known_gate(k, gated);
}

static int are_like_weights(const struct keeper *k, const struct ggml_tensor *weight,
                            const struct ggml_tensor *shared)
{
    return weight->buffer && pretend_type_of(k->ggml, weight->type).is_quantized &&
           weight->type == shared->type && weight->ne[0] == shared->ne[0] &&
           weight->ne[1] == shared->ne[1] && weight->nb[1] == shared->nb[1] && weight->ne[3] == 1 &&
           shared->ne[2] == 1 && shared->ne[3] == 1 && is_whole(k, shared) &&
           pretend_op_of(k->ggml, shared) == OP_NONE;
}

static int match_shared(const struct keeper *k, int routed_at, int shared_at)
{
    int at[] = {routed_at, routed_at + 1, routed_at + 2, shared_at, shared_at + 1, shared_at + 2};
    int outputs[] = {routed_at + 2, shared_at + 2}, ops[6];
    const struct ggml_tensor *routed = k->graph->nodes[routed_at + 2];
    const struct ggml_tensor *shared = k->graph->nodes[shared_at + 2];
    for (int i = 0; i < 6; i++)
        ops[i] = k->graph->nodes[at[i]]->op;
    if (!k->ggml->can_fuse || !k->ggml->can_fuse(k->graph, at, 6, ops, outputs, 2) ||
        !is_gated_pair(k, routed_at) || !is_gated_pair(k, shared_at))
        return 0;
    const struct ggml_tensor *up = routed->src[1], *shared_up = shared->src[1];
    const struct ggml_tensor *shared_gate = shared->src[0], *input = up->src[1];
    if (!are_like_weights(k, up->src[0], shared_up->src[0]) || !is_whole(k, shared_gate->src[0]) ||
        pretend_op_of(k->ggml, shared_gate->src[0]) != OP_NONE)
        return 0;
    return pretend_op_of(k->ggml, input) == OP_RESHAPE && input->src[0] == shared_up->src[1] &&
           input->ne[1] == 1 && input->ne[3] == 1 && is_whole(k, input) &&
           is_whole(k, shared_up->src[1]) && shared_up->src[1]->ne[2] == 1 &&
           shared_up->src[1]->ne[3] == 1 && is_whole(k, routed) && is_whole(k, shared) &&
           routed->op_params[0] == shared->op_params[0] &&
           routed->op_params[3] == shared->op_params[3];
}

static int are_three(const struct keeper *k, int at, enum pretend_op product)
{
    return op_at(k, at) == product && op_at(k, at + 1) == product && op_at(k, at + 2) == OP_GLU;
}

/* Moves the three nodes at `from` to `to`, before those that lie between. */
static void move_three(struct ggml_tensor **nodes, int to, int from)
{
    struct ggml_tensor *moved[3];
    memcpy(moved, nodes + from, sizeof moved);
    memmove(nodes + to + 3, nodes + to, (size_t)(from - to) * sizeof *nodes);
    memcpy(nodes + to, moved, sizeof moved);
}

/* Brings the shared expert's products next to the chosen ones'; returns how many nodes it passed.
 */
static int keep_shared(const struct keeper *k, int at)
{
    if (!are_three(k, at, OP_MUL_MAT_ID))
        return 0;
    for (int j = at + 3; j + 2 < k->graph->n_nodes; j++) {
        if (op_at(k, j) == OP_MUL_MAT_ID && op_at(k, j + 1) == OP_MUL_MAT_ID)
            return 0;
        if (!are_three(k, j, OP_MUL_MAT) || !match_shared(k, at, j))
            continue;
        if (k->only_looks)
            return 6;
        move_three(k->graph->nodes, at + 3, j);
        struct ggml_tensor *up = k->graph->nodes[at + 2]->src[1];
        keep(k, up->src[1], k->graph->nodes[at + 5]);
        keep(k, up->src[2], k->graph->nodes[at + 5]);
        return 6;
    }
    return 0;
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

/* Does what devices with these dependencies do; returns which of them there was something for. */
static uint32_t keep_all(const struct keeper *k, uint32_t kept)
{
    uint32_t met = 0;
    for (int i = 0; kept & MT_PRETEND_KEEP_SHARED && i + 5 < k->graph->n_nodes; i++) {
        int passed = keep_shared(k, i);
        met |= passed ? MT_PRETEND_KEEP_SHARED : 0;
        i += passed ? passed - 1 : 0;
    }
    for (int i = 0; i < k->graph->n_nodes; i++) {
        int passed = kept & MT_PRETEND_KEEP_REDUCTION ? keep_reduction(k, i) : 0;
        met |= passed ? MT_PRETEND_KEEP_REDUCTION : 0;
        if (passed)
            i += passed - 1;
        passed = kept & MT_PRETEND_KEEP_TOPK ? keep_topk(k, i) : 0;
        met |= passed ? MT_PRETEND_KEEP_TOPK : 0;
        if (passed)
            i += passed - 1;
    }
    return met;
}

void pretend_graph_optimize(struct ggml_backend *backend, struct ggml_graph *graph,
                            struct ggml_optimize *optimize)
{
    struct pretend_world *world = device_of(backend->device)->world;
    struct ggml_optimize given;
    if (!is_given(world, optimize, &given))
        return;
    struct keeper k = {world, &world->ggml, graph, &given, .only_looks = 1};
    if (world->account->builds.doubts)
        pretend_meet_doubt(world->account, keep_all(&k, world->account->builds.doubts));
    k.only_looks = 0;
    keep_all(&k, rules_of(world)->graph_dependencies);
}
