/* SPDX-License-Identifier: MIT */
/* Feed-forward parts of llama.cpp's graphs: dense ones, routed experts, shared experts. */
#include "build.h"

static const enum mt_slot dense[3] = {MT_SLOT_FFN_UP, MT_SLOT_FFN_GATE, MT_SLOT_FFN_DOWN};
static const enum mt_slot shared[3] = {MT_SLOT_SHARED_UP, MT_SLOT_SHARED_GATE, MT_SLOT_SHARED_DOWN};

static struct mt_node *activated(struct mt_build *build, struct mt_node *up, struct mt_node *gate,
                                 unsigned traits)
{
    if (gate)
        return mt_op_glu(build->graph, gate, up);
    if (traits & MT_BUILD_HALVES)
        return mt_op_glu(build->graph, up, NULL);
    up = mt_op_map(build->graph, up, NULL);
    return traits & MT_BUILD_RELU_SQUARE ? mt_op_map(build->graph, up, NULL) : up;
}

struct mt_node *mt_build_dense_ffn(struct mt_build *build, struct mt_node *x, size_t il,
                                   const enum mt_slot slots[3], uint64_t width, unsigned traits)
{
    int biased = slots == dense;
    uint64_t embedding = x->ne[0];
    int has_gate =
        mt_build_has(build, il, slots[1]) ||
        (build->d->format != MT_MODEL_GGUF && !(traits & (MT_BUILD_HALVES | MT_BUILD_RELU_SQUARE)));
    struct mt_node *up = mt_build_project(build, x, il, slots[0], width);
    struct mt_node *gate = NULL;
    if (biased)
        up = mt_build_biased(build, up, il, MT_SLOT_FFN_UP_B);
    if (has_gate)
        gate = mt_build_project(build, x, il, slots[1], width);
    if (has_gate && biased)
        gate = mt_build_biased(build, gate, il, MT_SLOT_FFN_GATE_B);
    x = activated(build, up, gate, traits);
    x = mt_build_project(build, x, il, slots[2], embedding);
    return biased ? mt_build_biased(build, x, il, MT_SLOT_FFN_DOWN_B) : x;
}

static struct mt_node *mapped(struct mt_build *build, struct mt_node *a, struct mt_node *b,
                              enum mt_kind kind)
{
    return mt_node_of_kind(mt_op_map(build->graph, a, b), kind);
}

/* Experts of the groups whose best two are best; those of others are out. */
static struct mt_node *best_groups(struct mt_build *build, struct mt_node *selection)
{
    struct mt_graph *g = build->graph;
    uint64_t n = selection->ne[1];
    uint64_t groups = build->d->expert_groups;
    uint64_t each = selection->ne[0] / groups;
    struct mt_node *all = mt_op_reshape(g, selection, each, groups, n, 1);
    struct mt_node *best = mt_op_top_k(g, all, 2);
    struct mt_node *scores = mt_op_get_rows(g, mt_op_reshape(g, all, 1, each, groups, n), best);
    scores = mt_op_sum_rows(g, mt_op_reshape(g, scores, 2, groups, n, 1));
    scores = mt_op_reshape(g, scores, groups, n, 1, 1);
    struct mt_node *chosen = mt_op_top_k(g, scores, build->d->expert_groups_used);
    struct mt_node *kept = mt_op_get_rows(g, all, chosen);
    kept = mt_op_set_rows(g, mt_op_map(g, all, NULL), kept, chosen);
    return mt_op_reshape(g, kept, groups * each, n, 1, 1);
}

/* Which experts each token goes to. */
static struct mt_node *chosen(struct mt_build *build, struct mt_node *logits, struct mt_node *probs,
                              size_t il, unsigned traits)
{
    struct mt_node *selection = probs;
    if (mt_build_has(build, il, MT_SLOT_EXPERT_BIAS))
        selection =
            mapped(build, probs, mt_build_maybe(build, il, MT_SLOT_EXPERT_BIAS), MT_KIND_ADD);
    if (traits & MT_BUILD_WEIGHTS_FIRST)
        selection = logits;
    if (build->d->expert_groups > 1 && build->d->expert_groups_used &&
        build->d->layers[il].experts % build->d->expert_groups == 0)
        selection = best_groups(build, selection);
    return mt_op_top_k(build->graph, selection, build->d->layers[il].experts_used);
}

static struct mt_node *weights_of(struct mt_build *build, struct mt_node *probs,
                                  struct mt_node *ids, unsigned traits)
{
    struct mt_graph *g = build->graph;
    uint64_t used = ids->ne[0];
    uint64_t n = ids->ne[1];
    probs = mt_op_reshape(g, probs, 1, probs->ne[0], n, 1);
    struct mt_node *weights = mt_op_get_rows(g, probs, ids);
    if (traits & MT_BUILD_SOFTMAX_LATE) {
        weights = mt_op_map(g, mt_op_reshape(g, weights, used, n, 1, 1), NULL);
        weights = mt_op_reshape(g, weights, 1, used, n, 1);
    }
    if (traits & MT_BUILD_NORMS_WEIGHTS) {
        weights = mt_op_reshape(g, weights, used, n, 1, 1);
        struct mt_node *sum = mapped(build, mt_op_sum_rows(g, weights), NULL, MT_KIND_CLAMP);
        weights = mapped(build, weights, sum, MT_KIND_DIV);
        weights = mt_op_reshape(g, weights, 1, used, n, 1);
    }
    if (traits & MT_BUILD_SCALES_WEIGHTS)
        weights = mapped(build, weights, NULL, MT_KIND_SCALE);
    mt_graph_expand(g, weights);
    return weights;
}

static struct mt_node *expert_biased(struct mt_build *build, struct mt_node *x, size_t il,
                                     enum mt_slot slot, struct mt_node *ids)
{
    struct mt_node *bias = mt_build_maybe(build, il, slot);
    return bias ? mt_op_add_id(build->graph, x, bias, ids) : x;
}

/* Up and gate of the chosen experts, through the activation. */
static struct mt_node *expert_hidden(struct mt_build *build, struct mt_node *x, size_t il,
                                     struct mt_node *ids, unsigned traits)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_layer *layer = &build->d->layers[il];
    uint64_t width = layer->expert_ff_length;
    if (mt_build_has(build, il, MT_SLOT_EXPERTS_GATE_UP)) {
        struct mt_node *both =
            mt_op_mul_mat_id(g, mt_build_maybe(build, il, MT_SLOT_EXPERTS_GATE_UP), x, ids);
        struct mt_node *gate = mt_op_columns(g, both, both->ne[0] / 2);
        struct mt_node *up = mt_op_columns(g, both, both->ne[0] / 2);
        return mt_op_glu(g, gate, up);
    }
    struct mt_node *weight =
        mt_build_weight(build, il, MT_SLOT_EXPERTS_UP, x->ne[0], width, layer->experts);
    struct mt_node *up = mt_op_mul_mat_id(g, weight, x, ids);
    up = expert_biased(build, up, il, MT_SLOT_EXPERTS_UP_B, ids);
    struct mt_node *gate = NULL;
    if (mt_build_expects(build, il, MT_SLOT_EXPERTS_GATE)) {
        weight = mt_build_weight(build, il, MT_SLOT_EXPERTS_GATE, x->ne[0], width, layer->experts);
        gate = mt_op_mul_mat_id(g, weight, x, ids);
        gate = expert_biased(build, gate, il, MT_SLOT_EXPERTS_GATE_B, ids);
    }
    return activated(build, up, gate, traits);
}

/* The sum over the experts of a token: views first, then one addition after the other. */
static struct mt_node *summed(struct mt_build *build, struct mt_node *experts, uint64_t used)
{
    struct mt_graph *g = build->graph;
    const uint64_t ne[4] = {experts->ne[0], experts->ne[2], 1, 1};
    const uint64_t nb[4] = {experts->nb[0], experts->nb[2], experts->nb[2] * experts->ne[2],
                            experts->nb[2] * experts->ne[2]};
    struct mt_node **views = mt_arena_array(g->arena, (size_t)used, sizeof *views);
    if (!views) {
        g->failed = 1;
        return &g->spare;
    }
    for (uint64_t i = 0; i < used; i++) {
        views[i] = mt_op_view(g, experts, ne, nb);
        mt_graph_expand(g, views[i]);
    }
    struct mt_node *sum = views[0];
    for (uint64_t i = 1; i < used; i++) {
        sum = mapped(build, sum, views[i], MT_KIND_ADD);
        mt_graph_expand(g, sum);
    }
    return used == 1 ? mt_op_like(g, sum) : sum;
}

struct mt_node *mt_build_experts(struct mt_build *build, struct mt_node *x, struct mt_node *logits,
                                 size_t il, unsigned traits)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_layer *layer = &build->d->layers[il];
    uint64_t embedding = x->ne[0];
    uint64_t n = x->ne[1];
    if (!logits) {
        logits = mt_build_project(build, x, il, MT_SLOT_ROUTER, layer->experts);
        logits = mt_build_biased(build, logits, il, MT_SLOT_ROUTER_B);
    }
    struct mt_node *probs = logits;
    if (!(traits & MT_BUILD_SOFTMAX_LATE)) /* or a sigmoid, which is fused in the same way */
        probs = mapped(build, logits, NULL, MT_KIND_SOFT_MAX);
    struct mt_node *ids = chosen(build, logits, probs, il, traits);
    struct mt_node *weights = weights_of(build, probs, ids, traits);
    x = mt_op_reshape(g, x, embedding, 1, n, 1);
    if (traits & MT_BUILD_WEIGHTS_FIRST)
        x = mt_op_map(g, mt_op_repeat(g, x, embedding, layer->experts_used, n, 1), weights);
    x = expert_hidden(build, x, il, ids, traits);
    struct mt_node *down = mt_build_weight(build, il, MT_SLOT_EXPERTS_DOWN, layer->expert_ff_length,
                                           embedding, layer->experts);
    x = mt_op_mul_mat_id(g, down, x, ids);
    x = expert_biased(build, x, il, MT_SLOT_EXPERTS_DOWN_B, ids);
    if (!(traits & MT_BUILD_WEIGHTS_FIRST))
        x = mapped(build, x, weights, MT_KIND_MUL);
    mt_graph_expand(g, x);
    return summed(build, x, layer->experts_used);
}

static int has_experts(const struct mt_build *build, size_t il)
{
    if (build->d->format == MT_MODEL_GGUF)
        return mt_build_has(build, il, MT_SLOT_ROUTER);
    return build->d->layers[il].experts > 0 && build->d->layers[il].experts_used > 0;
}

struct mt_node *mt_build_ffn(struct mt_build *build, struct mt_node *x, size_t il, unsigned traits)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_layer *layer = &build->d->layers[il];
    g->part = MT_PART_FFN;
    if (!has_experts(build, il) || !layer->experts_used)
        return mt_build_dense_ffn(build, x, il, dense, layer->ff_length, traits);
    struct mt_node *routed = mt_build_experts(build, x, NULL, il, traits);
    if (!mt_build_has(build, il, MT_SLOT_SHARED_UP) && !layer->shared_ff_length)
        return routed;
    struct mt_node *beside =
        mt_build_dense_ffn(build, x, il, shared, layer->shared_ff_length, traits);
    if (mt_build_expects(build, il, MT_SLOT_SHARED_ROUTER)) {
        struct mt_node *gate = mt_build_project(build, x, il, MT_SLOT_SHARED_ROUTER, 1);
        struct mt_node *open = mt_op_map(g, gate, NULL);
        if (traits & MT_BUILD_SHARED_BY_RATIO)
            open = mt_op_map(g, open, gate);
        beside = mt_op_map(g, beside, open);
    }
    return mt_op_map(g, routed, beside);
}
