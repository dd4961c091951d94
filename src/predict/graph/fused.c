/* SPDX-License-Identifier: MIT */
/* Replays what ggml's CUDA devices keep allocated for the operations that they fuse in layers of
 * experts, before the scheduler lays a split out (ggml-cuda.cu: ggml_backend_cuda_graph_optimize).
 *
 * A fused kernel reads its inputs while it writes its output, so they must not share memory. The
 * patterns are those that are looked for whatever the size of the batch. Knows no model. */
#include "fused.h"

#include <string.h>

#define EXPERTS_MIN     2 /* of a fused weighted sum */
#define EXPERTS_MAX     15
#define EXPERTS_OF_TOPK 512
#define NODES_MAX       (2 * EXPERTS_MAX + 1)

struct keeper {
    struct mt_graph *graph;
    struct mt_node **nodes; /* of the split; behind them those of the next one */
    size_t n;
    size_t n_to_end; /* of the graph */
};

static void keep(struct keeper *k, struct mt_node *node, struct mt_node *until)
{
    struct mt_arena *arena = k->graph->arena;
    if (!until->kept)
        until->kept = mt_arena_array(arena, 1, sizeof *until->kept);
    if (!until->kept) {
        k->graph->failed = 1;
        return;
    }
    for (size_t i = 0; i < until->kept->n; i++)
        if (until->kept->at[i] == node)
            return;
    if (mt_node_list_add(arena, until->kept, node) < 0)
        k->graph->failed = 1;
}

static enum mt_kind kind_at(const struct keeper *k, size_t at)
{
    return at < k->n ? (enum mt_kind)k->nodes[at]->kind : MT_KIND_OTHER;
}

/* Whether the node is of that kind, of what the node before it made. */
static int follows(const struct keeper *k, size_t at, enum mt_kind kind)
{
    return at && kind_at(k, at) == kind && k->nodes[at]->sources[0] == k->nodes[at - 1];
}

static int is_plain(const struct mt_node *node)
{
    return node->type == MT_TYPE_F32 && mt_node_is_contiguous(node);
}

static int have_one_shape(const struct mt_node *a, const struct mt_node *b)
{
    return memcmp(a->ne, b->ne, sizeof a->ne) == 0;
}

static int is_among(const struct keeper *k, const size_t *at, size_t n, const struct mt_node *node)
{
    for (size_t i = 0; i < n; i++)
        if (k->nodes[at[i]] == node)
            return 1;
    return 0;
}

/* How often the nodes read one of them. */
static int uses_among(const struct keeper *k, const size_t *at, size_t n,
                      const struct mt_node *node)
{
    int uses = 0;
    for (size_t i = 0; i < n; i++)
        for (int j = 0; j < MT_GRAPH_SOURCES_MAX; j++)
            uses += k->nodes[at[i]]->sources[j] == node;
    return uses;
}

/* Whether nobody else needs what the nodes make, but for the outputs. */
static int can_fuse(const struct keeper *k, const size_t *at, size_t n, const size_t *outputs,
                    size_t n_outputs)
{
    for (size_t i = 0; i < n; i++) {
        const struct mt_node *node = k->nodes[at[i]];
        if (is_among(k, outputs, n_outputs, node))
            continue;
        if (node->flags & MT_NODE_OUTPUT || uses_among(k, at, n, node) != node->uses)
            return 0;
        if (node->view_of && !is_among(k, at, n, node->view_of) &&
            !(node->view_of->flags & MT_NODE_WEIGHT))
            return 0;
    }
    return 1;
}

static int can_fuse_run(const struct keeper *k, size_t first, size_t n, const size_t *outputs,
                        size_t n_outputs)
{
    size_t at[NODES_MAX];
    if (n > NODES_MAX || first + n > k->n)
        return 0;
    for (size_t i = 0; i < n; i++)
        at[i] = first + i;
    return can_fuse(k, at, n, outputs, n_outputs);
}

/* Choosing experts. */

struct topk {
    size_t view; /* of the chosen numbers */
    size_t n;    /* nodes in all */
};

/* Finds the last node of the gate's function. */
static int match_gate(const struct keeper *k, size_t at, size_t *last)
{
    enum mt_kind kind = kind_at(k, at);
    *last = at;
    if (kind == MT_KIND_SIGMOID)
        return 1;
    if (kind == MT_KIND_SOFT_MAX)
        return !k->nodes[at]->sources[1] && !k->nodes[at]->sources[2] &&
               mt_node_is_contiguous(k->nodes[at]->sources[0]);
    *last = at + 1;
    return kind == MT_KIND_SOFTPLUS && follows(k, at + 1, MT_KIND_SQRT);
}

/* The number of nodes that make the chosen weights add up to one, or 0. */
static size_t match_norm(const struct keeper *k, size_t at)
{
    if (!follows(k, at, MT_KIND_RESHAPE) || !follows(k, at + 1, MT_KIND_SUM_ROWS) ||
        !follows(k, at + 2, MT_KIND_CLAMP) || kind_at(k, at + 3) != MT_KIND_DIV ||
        !follows(k, at + 4, MT_KIND_RESHAPE))
        return 0;
    const struct mt_node *quotient = k->nodes[at + 3];
    return quotient->sources[0] == k->nodes[at] && quotient->sources[1] == k->nodes[at + 2] ? 5 : 0;
}

static int match_topk(const struct keeper *k, size_t at, struct topk *topk)
{
    size_t last;
    if (!match_gate(k, at, &last) || !follows(k, last + 1, MT_KIND_RESHAPE))
        return 0;
    const struct mt_node *sorted = k->nodes[last];
    const struct mt_node *reshaped = k->nodes[last + 1];
    size_t next = last + 2;
    if (kind_at(k, next) == MT_KIND_ADD && k->nodes[next]->sources[0] == sorted)
        sorted = k->nodes[next++];
    if (kind_at(k, next) != MT_KIND_ARGSORT || k->nodes[next]->sources[0] != sorted ||
        !follows(k, next + 1, MT_KIND_VIEW) || kind_at(k, next + 2) != MT_KIND_GET_ROWS)
        return 0;
    topk->view = next + 1;
    const struct mt_node *weights = k->nodes[next + 2];
    if (weights->sources[0] != reshaped || weights->sources[1] != k->nodes[topk->view])
        return 0;
    next += 3;
    next += match_norm(k, next);
    next += (size_t)follows(k, next, MT_KIND_SCALE);
    topk->n = next - at;
    return 1;
}

/* Whether there is a kernel for so many experts. */
static int has_kernel(uint64_t experts)
{
    return ((experts & (experts - 1)) == 0 && experts <= EXPERTS_OF_TOPK) || experts == 288 ||
           experts == 576;
}

/* Keeps the nodes and all that they read until the node after them. Returns how many they are. */
static size_t keep_topk(struct keeper *k, size_t at)
{
    struct topk topk;
    if (!match_topk(k, at, &topk) || at + topk.n >= k->n_to_end)
        return 0;
    const size_t outputs[] = {topk.view, at + topk.n - 1};
    const struct mt_node *ids = k->nodes[topk.view];
    if (!can_fuse_run(k, at, topk.n, outputs, 2) || !ids->nb[0] ||
        !has_kernel(ids->nb[1] / ids->nb[0]) || !mt_node_is_contiguous(k->nodes[outputs[1]]))
        return 0;
    struct mt_node *until = k->nodes[at + topk.n];
    for (size_t i = at; i < at + topk.n; i++) {
        keep(k, k->nodes[i], until);
        for (int j = 0; j < MT_GRAPH_SOURCES_MAX; j++)
            if (k->nodes[i]->sources[j])
                keep(k, k->nodes[i]->sources[j], until);
    }
    return topk.n;
}

/* Weighing what the chosen experts made, and adding it up. */

static int is_weight_of(const struct mt_node *product, const struct mt_node *node)
{
    return node && is_plain(node) && node->ne[0] == 1 &&
           memcmp(&node->ne[1], &product->ne[1], 3 * sizeof node->ne[1]) == 0;
}

/* Tells the factors of a product of experts and weights. */
static int split_product(const struct mt_node *product, struct mt_node **experts,
                         struct mt_node **weights)
{
    for (int i = 0; i < 2; i++) {
        struct mt_node *a = product->sources[i];
        struct mt_node *b = product->sources[1 - i];
        if (a && is_plain(a) && have_one_shape(a, product) && is_weight_of(product, b)) {
            *experts = a;
            *weights = b;
            return 1;
        }
    }
    return 0;
}

struct reduction {
    struct mt_node *weighted; /* experts times weights */
    struct mt_node *experts;
    struct mt_node *scale; /* of each expert, or NULL */
    struct mt_node *weights;
    size_t n_products;
    uint64_t n_experts;
    uint64_t n_tokens;
};

static int match_products(const struct keeper *k, size_t at, struct reduction *r)
{
    struct mt_node *scaled;
    *r = (struct reduction){.weighted = k->nodes[at], .n_products = 1};
    if (kind_at(k, at) != MT_KIND_MUL || !is_plain(r->weighted))
        return 0;
    if (kind_at(k, at + 1) == MT_KIND_MUL && is_plain(k->nodes[at + 1]) &&
        split_product(k->nodes[at + 1], &scaled, &r->weights) && scaled == k->nodes[at] &&
        split_product(k->nodes[at], &r->experts, &r->scale)) {
        r->weighted = k->nodes[at + 1];
        r->n_products = 2;
    } else {
        r->scale = NULL;
        if (!split_product(r->weighted, &r->experts, &r->weights))
            return 0;
    }
    r->n_experts = r->weighted->ne[1];
    r->n_tokens = r->weighted->ne[2] * r->weighted->ne[3];
    return r->n_experts >= EXPERTS_MIN && r->n_experts <= EXPERTS_MAX && r->n_tokens;
}

static int is_view_of_expert(const struct reduction *r, const struct mt_node *view)
{
    const struct mt_node *all = r->weighted;
    return view->sources[0] == all && view->view_of == all && view->ne[0] == all->ne[0] &&
           view->ne[1] == r->n_tokens && view->ne[2] == 1 && view->ne[3] == 1 &&
           view->nb[0] == all->nb[0] && view->nb[1] == all->nb[2];
}

/* The last of the sums after the products, or NULL where that is not what follows. */
static struct mt_node *match_sums(const struct keeper *k, size_t at, size_t n,
                                  const struct reduction *r)
{
    struct mt_node *views[EXPERTS_MAX];
    struct mt_node *sum = NULL;
    size_t n_views = 0;
    size_t n_sums = 0;
    for (size_t i = at; i < at + n; i++) {
        struct mt_node *node = k->nodes[i];
        if (kind_at(k, i) == MT_KIND_VIEW && n_views < r->n_experts && is_view_of_expert(r, node)) {
            views[n_views++] = node;
            continue;
        }
        if (kind_at(k, i) != MT_KIND_ADD || n_sums + 1 >= n_views ||
            node->sources[0] != (n_sums ? sum : views[0]) || node->sources[1] != views[n_sums + 1])
            return NULL;
        sum = node;
        n_sums++;
    }
    return n_views == r->n_experts && n_sums + 1 == n_views && is_plain(sum) ? sum : NULL;
}

static size_t keep_reduction(struct keeper *k, size_t at)
{
    struct reduction r;
    if (!match_products(k, at, &r))
        return 0;
    size_t n = 2 * (size_t)r.n_experts + r.n_products - 1;
    if (at + n > k->n)
        return 0;
    struct mt_node *sum = match_sums(k, at + r.n_products, n - r.n_products, &r);
    const size_t output = at + n - 1;
    if (!sum || !can_fuse_run(k, at, n, &output, 1))
        return 0;
    keep(k, r.experts, sum);
    keep(k, r.weights, sum);
    if (r.scale)
        keep(k, r.scale, sum);
    return n;
}

/* The shared expert beside the chosen ones. */

static int have_one_type(const struct mt_node *a, const struct mt_node *b)
{
    return a->weight_type && b->weight_type && strcmp(a->weight_type, b->weight_type) == 0;
}

/* Whether two products and the gate over them are of one input and alike in their weights. */
static int is_gated_pair(const struct keeper *k, size_t at)
{
    const struct mt_node *first = k->nodes[at];
    const struct mt_node *second = k->nodes[at + 1];
    const struct mt_node *a = k->nodes[at + 2]->sources[0];
    const struct mt_node *b = k->nodes[at + 2]->sources[1];
    if (!((a == first && b == second) || (a == second && b == first)))
        return 0;
    return have_one_type(a->sources[0], b->sources[0]) &&
           have_one_shape(a->sources[0], b->sources[0]) &&
           a->sources[0]->nb[1] == b->sources[0]->nb[1] && a->sources[1] == b->sources[1] &&
           a->sources[2] == b->sources[2];
}

static int are_like_weights(const struct mt_node *weight, const struct mt_node *shared)
{
    return weight->flags & MT_NODE_EXTERNAL && weight->quantised && have_one_type(weight, shared) &&
           weight->ne[0] == shared->ne[0] && weight->ne[1] == shared->ne[1] &&
           weight->nb[1] == shared->nb[1] && weight->ne[3] == 1 && shared->ne[2] == 1 &&
           shared->ne[3] == 1;
}

static int match_shared(const struct keeper *k, size_t routed_at, size_t shared_at)
{
    const size_t at[] = {routed_at, routed_at + 1, routed_at + 2,
                         shared_at, shared_at + 1, shared_at + 2};
    const size_t outputs[] = {routed_at + 2, shared_at + 2};
    const struct mt_node *routed = k->nodes[routed_at + 2];
    const struct mt_node *shared = k->nodes[shared_at + 2];
    if (!can_fuse(k, at, 6, outputs, 2) || !is_gated_pair(k, routed_at) ||
        !is_gated_pair(k, shared_at))
        return 0;
    const struct mt_node *up = routed->sources[1];
    const struct mt_node *beside = shared->sources[1];
    const struct mt_node *input = up->sources[1];
    return are_like_weights(up->sources[0], beside->sources[0]) && input->kind == MT_KIND_RESHAPE &&
           input->sources[0] == beside->sources[1] && input->ne[1] == 1 && input->ne[3] == 1 &&
           mt_node_is_contiguous(input) && mt_node_is_contiguous(beside->sources[1]) &&
           beside->sources[1]->ne[2] == 1 && beside->sources[1]->ne[3] == 1;
}

static int are_three(const struct keeper *k, size_t at, enum mt_kind product)
{
    return kind_at(k, at) == product && kind_at(k, at + 1) == product &&
           kind_at(k, at + 2) == MT_KIND_GLU;
}

/* Moves the three nodes at `from` to `to`, before those that lie between. */
static void move_three(struct mt_node **nodes, size_t to, size_t from)
{
    struct mt_node *moved[3];
    memcpy(moved, nodes + from, sizeof moved);
    memmove(nodes + to + 3, nodes + to, (from - to) * sizeof *nodes);
    memcpy(nodes + to, moved, sizeof moved);
}

/* Brings the shared expert's products next to the chosen ones'. Returns how many nodes it passed.
 */
static size_t keep_shared(struct keeper *k, size_t at)
{
    if (!are_three(k, at, MT_KIND_EXPERTS))
        return 0;
    for (size_t j = at + 3; j + 2 < k->n; j++) {
        if (kind_at(k, j) == MT_KIND_EXPERTS && kind_at(k, j + 1) == MT_KIND_EXPERTS)
            return 0;
        if (!are_three(k, j, MT_KIND_MUL_MAT) || !match_shared(k, at, j))
            continue;
        move_three(k->nodes, at + 3, j);
        const struct mt_node *up = k->nodes[at + 2]->sources[1];
        keep(k, up->sources[1], k->nodes[at + 5]);
        keep(k, up->sources[2], k->nodes[at + 5]);
        return 6;
    }
    return 0;
}

void mt_graph_keep_fused(struct mt_graph *graph, size_t start, size_t end, unsigned kept)
{
    struct keeper k = {graph, graph->nodes.at + start, end - start, graph->nodes.n - start};
    for (size_t i = 0; kept & MT_KEEP_SHARED && i + 5 < k.n; i++) {
        size_t passed = keep_shared(&k, i);
        i += passed ? passed - 1 : 0;
    }
    for (size_t i = 0; i < k.n; i++) {
        size_t passed = kept & MT_KEEP_REDUCTION ? keep_reduction(&k, i) : 0;
        i += passed ? passed - 1 : 0;
        passed = kept & MT_KEEP_TOPK ? keep_topk(&k, i) : 0;
        i += passed ? passed - 1 : 0;
    }
}
