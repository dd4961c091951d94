/* SPDX-License-Identifier: MIT */
/* The patterns in the engine's own order. */
#include "engine/fused.h"

#include <string.h>

#define EXPERTS_MIN     2 /* of a fused weighted sum */
#define EXPERTS_MAX     ((MT_FUSED_NODES_MAX - 1) / 2)
#define EXPERTS_OF_TOPK 512

static enum mt_kind kind_at(const struct mt_fused_graph *g, size_t at)
{
    return at < g->n ? g->kind(g, g->at(g, at)) : MT_KIND_OTHER;
}

static struct mt_fused_node node_at(const struct mt_fused_graph *g, size_t at)
{
    struct mt_fused_node node;
    g->read(g, g->at(g, at), &node);
    return node;
}

static struct mt_fused_node node_from(const struct mt_fused_graph *g, const void *of)
{
    struct mt_fused_node node;
    g->read(g, of, &node);
    return node;
}

static void *source_at(const struct mt_fused_graph *g, size_t at, int i)
{
    return node_at(g, at).sources[i];
}

static void keep(const struct mt_fused_graph *g, void *node, void *until)
{
    if (g->keep && node)
        g->keep(g, node, until);
}

/* Whether the node is of that kind, of what the node before it made. */
static int follows(const struct mt_fused_graph *g, size_t at, enum mt_kind kind)
{
    return at && kind_at(g, at) == kind && source_at(g, at, 0) == g->at(g, at - 1);
}

static int is_plain(const struct mt_fused_node *node)
{
    return node->is_f32 && node->is_contiguous;
}

static int have_one_shape(const struct mt_fused_node *a, const struct mt_fused_node *b)
{
    return memcmp(a->ne, b->ne, sizeof a->ne) == 0;
}

static int can_fuse_run(const struct mt_fused_graph *g, size_t first, size_t n,
                        const size_t *outputs, size_t n_outputs)
{
    size_t at[MT_FUSED_NODES_MAX];
    if (n > MT_FUSED_NODES_MAX || first + n > g->n)
        return 0;
    for (size_t i = 0; i < n; i++)
        at[i] = first + i;
    return g->can_fuse(g, at, n, outputs, n_outputs);
}

/* Choosing experts. */

struct topk {
    size_t view; /* of the chosen numbers */
    size_t n;    /* nodes in all */
};

/* Finds the last node of the gate's function. */
static int match_gate(const struct mt_fused_graph *g, size_t at, size_t *last)
{
    enum mt_kind kind = kind_at(g, at);
    *last = kind == MT_KIND_SOFTPLUS ? at + 1 : at;
    if (kind == MT_KIND_SOFTPLUS)
        return follows(g, at + 1, MT_KIND_SQRT);
    if (kind == MT_KIND_SIGMOID)
        return 1;
    if (kind != MT_KIND_SOFT_MAX)
        return 0;
    struct mt_fused_node node = node_at(g, at);
    return !node.sources[1] && !node.sources[2];
}

/* The number of nodes that make the chosen weights add up to one, or 0. */
static size_t match_norm(const struct mt_fused_graph *g, size_t at)
{
    if (!follows(g, at, MT_KIND_RESHAPE) || !follows(g, at + 1, MT_KIND_SUM_ROWS) ||
        !follows(g, at + 2, MT_KIND_CLAMP) || kind_at(g, at + 3) != MT_KIND_DIV ||
        !follows(g, at + 4, MT_KIND_RESHAPE))
        return 0;
    struct mt_fused_node quotient = node_at(g, at + 3);
    return quotient.sources[0] == g->at(g, at) && quotient.sources[1] == g->at(g, at + 2) ? 5 : 0;
}

static int match_topk(const struct mt_fused_graph *g, size_t at, struct topk *topk)
{
    size_t last;
    if (!match_gate(g, at, &last) || !follows(g, last + 1, MT_KIND_RESHAPE))
        return 0;
    const void *sorted = g->at(g, last);
    const void *reshaped = g->at(g, last + 1);
    size_t next = last + 2;
    if (kind_at(g, next) == MT_KIND_ADD && source_at(g, next, 0) == sorted)
        sorted = g->at(g, next++);
    if (kind_at(g, next) != MT_KIND_ARGSORT || source_at(g, next, 0) != sorted ||
        !follows(g, next + 1, MT_KIND_VIEW) || kind_at(g, next + 2) != MT_KIND_GET_ROWS)
        return 0;
    topk->view = next + 1;
    struct mt_fused_node weights = node_at(g, next + 2);
    if (weights.sources[0] != reshaped || weights.sources[1] != g->at(g, topk->view))
        return 0;
    next += 3;
    next += match_norm(g, next);
    next += (size_t)follows(g, next, MT_KIND_SCALE);
    topk->n = next - at;
    return 1;
}

static int is_of_kernel(uint64_t experts)
{
    return ((experts & (experts - 1)) == 0 && experts <= EXPERTS_OF_TOPK) || experts == 288 ||
           experts == 576;
}

/* Whether there is a kernel for so many experts that lie so. */
static int has_kernel(const struct mt_fused_graph *g, size_t at, const struct topk *topk)
{
    struct mt_fused_node ids = node_at(g, topk->view);
    const void *logits = source_at(g, at, 0);
    return ids.nb[0] && is_of_kernel(ids.nb[1] / ids.nb[0]) && logits &&
           node_from(g, logits).is_contiguous && node_at(g, at + topk->n - 1).is_contiguous;
}

/* Keeps the nodes and all that they read until the node after them, which may be the first of the
 * next split. Returns how many they are. */
static size_t keep_topk(const struct mt_fused_graph *g, size_t at)
{
    struct topk topk;
    if (!match_topk(g, at, &topk) || at + topk.n >= g->n_to_end)
        return 0;
    const size_t outputs[] = {topk.view, at + topk.n - 1};
    if (!can_fuse_run(g, at, topk.n, outputs, 2) || !has_kernel(g, at, &topk))
        return 0;
    void *until = g->at(g, at + topk.n);
    for (size_t i = at; until && i < at + topk.n; i++) {
        struct mt_fused_node node = node_at(g, i);
        keep(g, g->at(g, i), until);
        for (int j = 0; j < MT_FUSED_SOURCES_MAX; j++)
            keep(g, node.sources[j], until);
    }
    return topk.n;
}

/* Weighing what the chosen experts made, and adding it up. */

static int is_weight_of(const struct mt_fused_node *product, const struct mt_fused_node *node)
{
    return is_plain(node) && node->ne[0] == 1 &&
           memcmp(&node->ne[1], &product->ne[1], 3 * sizeof node->ne[1]) == 0;
}

/* Tells the factors of a product of experts and weights. */
static int split_product(const struct mt_fused_graph *g, const struct mt_fused_node *product,
                         void **experts, void **weights)
{
    if (!product->sources[0] || !product->sources[1])
        return 0;
    const struct mt_fused_node factors[] = {node_from(g, product->sources[0]),
                                            node_from(g, product->sources[1])};
    for (int i = 0; i < 2; i++)
        if (is_plain(&factors[i]) && have_one_shape(&factors[i], product) &&
            is_weight_of(product, &factors[1 - i])) {
            *experts = product->sources[i];
            *weights = product->sources[1 - i];
            return 1;
        }
    return 0;
}

struct reduction {
    void *weighted;           /* experts times weights */
    struct mt_fused_node all; /* the same, read */
    void *experts;
    void *scale; /* of each expert, or NULL */
    void *weights;
    size_t n_products;
    uint64_t n_experts;
    uint64_t n_tokens;
};

/* Whether a second product weighs what the first one scaled. */
static int match_second(const struct mt_fused_graph *g, size_t at,
                        const struct mt_fused_node *first, struct reduction *r)
{
    void *scaled;
    if (kind_at(g, at) != MT_KIND_MUL)
        return 0;
    struct mt_fused_node second = node_at(g, at);
    if (!is_plain(&second) || !split_product(g, &second, &scaled, &r->weights) ||
        scaled != r->weighted || !split_product(g, first, &r->experts, &r->scale))
        return 0;
    r->weighted = g->at(g, at);
    r->all = second;
    r->n_products = 2;
    return 1;
}

static int match_products(const struct mt_fused_graph *g, size_t at, struct reduction *r)
{
    if (kind_at(g, at) != MT_KIND_MUL)
        return 0;
    struct mt_fused_node first = node_at(g, at);
    *r = (struct reduction){.weighted = g->at(g, at), .all = first, .n_products = 1};
    if (!is_plain(&first))
        return 0;
    if (!match_second(g, at + 1, &first, r)) {
        r->scale = NULL;
        if (!split_product(g, &first, &r->experts, &r->weights))
            return 0;
    }
    r->n_experts = r->all.ne[1];
    r->n_tokens = r->all.ne[2] * r->all.ne[3];
    return r->n_experts >= EXPERTS_MIN && r->n_experts <= EXPERTS_MAX && r->n_tokens;
}

static int is_sum_of_tokens(const struct reduction *r, const struct mt_fused_node *node)
{
    return node->is_f32 && node->ne[0] == r->all.ne[0] && node->ne[1] == r->n_tokens &&
           node->ne[2] == 1 && node->ne[3] == 1;
}

static int is_view_of_expert(const struct reduction *r, uint64_t expert,
                             const struct mt_fused_node *view)
{
    return expert < r->n_experts && view->sources[0] == r->weighted &&
           view->view_of == r->weighted && is_sum_of_tokens(r, view) &&
           view->nb[0] == r->all.nb[0] && view->nb[1] == r->all.nb[2] &&
           (view->view_offset == MT_FUSED_ANYWHERE || view->view_offset == expert * r->all.nb[1]);
}

/* The last of the sums after the products, or NULL where that is not what follows. */
static void *match_sums(const struct mt_fused_graph *g, size_t at, size_t n,
                        const struct reduction *r)
{
    void *views[EXPERTS_MAX];
    void *sum = NULL;
    size_t n_views = 0;
    size_t n_sums = 0;
    for (size_t i = at; i < at + n; i++) {
        enum mt_kind kind = kind_at(g, i);
        struct mt_fused_node node = node_at(g, i);
        if (kind == MT_KIND_VIEW && is_view_of_expert(r, n_views, &node)) {
            views[n_views++] = g->at(g, i);
            continue;
        }
        if (kind != MT_KIND_ADD || n_sums + 1 >= n_views ||
            node.sources[0] != (n_sums ? sum : views[0]) || node.sources[1] != views[n_sums + 1] ||
            !is_sum_of_tokens(r, &node))
            return NULL;
        sum = g->at(g, i);
        n_sums++;
    }
    return n_views == r->n_experts && n_sums + 1 == n_views && node_from(g, sum).is_contiguous
               ? sum
               : NULL;
}

static size_t keep_reduction(const struct mt_fused_graph *g, size_t at)
{
    struct reduction r;
    if (!match_products(g, at, &r))
        return 0;
    size_t n = 2 * (size_t)r.n_experts + r.n_products - 1;
    if (at + n > g->n)
        return 0;
    void *sum = match_sums(g, at + r.n_products, n - r.n_products, &r);
    const size_t output = at + n - 1;
    if (!sum || !can_fuse_run(g, at, n, &output, 1))
        return 0;
    keep(g, r.experts, sum);
    keep(g, r.weights, sum);
    keep(g, r.scale, sum);
    return n;
}

/* The shared expert beside the chosen ones. */

static int have_one_type(const struct mt_fused_node *a, const struct mt_fused_node *b)
{
    return a->type && b->type && strcmp(a->type, b->type) == 0;
}

/* A gated unit, the products that it is of, and the weights of these. */
struct pair {
    struct mt_fused_node unit;
    struct mt_fused_node gate;
    struct mt_fused_node up;
    struct mt_fused_node weight_of_gate;
    struct mt_fused_node weight_of_up;
};

/* Whether two products and the gate over them are of one input and alike in their weights. */
static int read_pair(const struct mt_fused_graph *g, size_t at, struct pair *p)
{
    const void *first = g->at(g, at);
    const void *second = g->at(g, at + 1);
    p->unit = node_at(g, at + 2);
    const void *a = p->unit.sources[0];
    const void *b = p->unit.sources[1];
    if (!((a == first && b == second) || (a == second && b == first)))
        return 0;
    p->gate = node_from(g, a);
    p->up = node_from(g, b);
    p->weight_of_gate = node_from(g, p->gate.sources[0]);
    p->weight_of_up = node_from(g, p->up.sources[0]);
    return have_one_type(&p->weight_of_gate, &p->weight_of_up) &&
           have_one_shape(&p->weight_of_gate, &p->weight_of_up) &&
           memcmp(p->weight_of_gate.nb, p->weight_of_up.nb, sizeof p->weight_of_up.nb) == 0 &&
           p->gate.sources[1] == p->up.sources[1] && p->gate.sources[2] == p->up.sources[2];
}

static int are_like_weights(const struct mt_fused_node *weight, const struct mt_fused_node *shared)
{
    return weight->is_quantised_weight && have_one_type(weight, shared) &&
           weight->ne[0] == shared->ne[0] && weight->ne[1] == shared->ne[1] &&
           weight->nb[1] == shared->nb[1] && weight->ne[3] == 1 && shared->ne[2] == 1 &&
           shared->ne[3] == 1;
}

static int is_whole_leaf(const struct mt_fused_node *node)
{
    return node->is_leaf && node->is_contiguous;
}

static int match_shared(const struct mt_fused_graph *g, size_t routed_at, size_t shared_at)
{
    const size_t at[] = {routed_at, routed_at + 1, routed_at + 2,
                         shared_at, shared_at + 1, shared_at + 2};
    const size_t outputs[] = {routed_at + 2, shared_at + 2};
    struct pair routed;
    struct pair shared;
    if (!g->can_fuse(g, at, 6, outputs, 2) || !read_pair(g, routed_at, &routed) ||
        !read_pair(g, shared_at, &shared) || routed.unit.variant != shared.unit.variant ||
        !routed.unit.is_contiguous || !shared.unit.is_contiguous)
        return 0;
    if (!are_like_weights(&routed.weight_of_up, &shared.weight_of_up) ||
        !is_whole_leaf(&shared.weight_of_up) || !is_whole_leaf(&shared.weight_of_gate) ||
        g->kind(g, routed.up.sources[1]) != MT_KIND_RESHAPE)
        return 0;
    struct mt_fused_node input = node_from(g, routed.up.sources[1]);
    struct mt_fused_node beside = node_from(g, shared.up.sources[1]);
    return input.sources[0] == shared.up.sources[1] && input.ne[1] == 1 && input.ne[3] == 1 &&
           input.is_contiguous && beside.is_contiguous && beside.ne[2] == 1 && beside.ne[3] == 1;
}

static int are_three(const struct mt_fused_graph *g, size_t at, enum mt_kind product)
{
    return kind_at(g, at) == product && kind_at(g, at + 1) == product &&
           kind_at(g, at + 2) == MT_KIND_GLU;
}

/* Brings the shared expert's products next to the chosen ones'. Returns how many nodes it passed.
 */
static size_t keep_shared(const struct mt_fused_graph *g, size_t at)
{
    if (!are_three(g, at, MT_KIND_EXPERTS))
        return 0;
    for (size_t j = at + 3; j + 2 < g->n; j++) {
        if (kind_at(g, j) == MT_KIND_EXPERTS && kind_at(g, j + 1) == MT_KIND_EXPERTS)
            return 0;
        if (!are_three(g, j, MT_KIND_MUL_MAT) || !match_shared(g, at, j))
            continue;
        if (g->keep) {
            g->move_three(g, at + 3, j);
            struct mt_fused_node up = node_from(g, source_at(g, at + 2, 1));
            keep(g, up.sources[1], g->at(g, at + 5));
            keep(g, up.sources[2], g->at(g, at + 5));
        }
        return 6;
    }
    return 0;
}

unsigned mt_fused_keep(const struct mt_fused_graph *graph, unsigned kept)
{
    unsigned met = 0;
    for (size_t i = 0; kept & MT_KEEP_SHARED && i + 5 < graph->n; i++) {
        size_t passed = keep_shared(graph, i);
        met |= passed ? MT_KEEP_SHARED : 0;
        i += passed ? passed - 1 : 0;
    }
    for (size_t i = 0; i < graph->n; i++) {
        size_t passed = kept & MT_KEEP_REDUCTION ? keep_reduction(graph, i) : 0;
        met |= passed ? MT_KEEP_REDUCTION : 0;
        i += passed ? passed - 1 : 0;
        passed = kept & MT_KEEP_TOPK ? keep_topk(graph, i) : 0;
        met |= passed ? MT_KEEP_TOPK : 0;
        i += passed ? passed - 1 : 0;
    }
    return met;
}
