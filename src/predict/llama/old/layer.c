/* SPDX-License-Identifier: MIT */
/* Layers of older llama.cpp graphs: norms, attention over a cache of keys and values, feed-forward
 * and experts. Operations and their sources stand in the order in which the engine names them: the
 * allocator's result depends on it. */
#include "internal.h"

#include <string.h>

struct mt_old_shape mt_old_f32(uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    return (struct mt_old_shape){{ne0, ne1, ne2, 1}, ne0 * ne1 * ne2 * 4};
}

struct mt_old_shape mt_old_f16(uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    return (struct mt_old_shape){{ne0, ne1, ne2, 1}, ne0 * ne1 * ne2 * 2};
}

static struct mt_node *new_node(struct mt_old *b, enum mt_op op, struct mt_old_shape shape)
{
    uint64_t elements = shape.ne[0] * shape.ne[1] * shape.ne[2];
    int is_half = shape.bytes < elements * 4;
    struct mt_node *node = mt_node_new(b->graph, op, is_half ? MT_TYPE_F16 : MT_TYPE_F32, shape.ne);
    node->bytes = shape.bytes;
    return node;
}

struct mt_node *mt_old_make(struct mt_old *b, struct mt_old_shape shape,
                            struct mt_node *const sources[MT_OLD_SOURCES])
{
    struct mt_node *node = new_node(b, MT_OP_NEW, shape);
    memcpy(node->sources, sources, MT_OLD_SOURCES * sizeof *sources);
    return node;
}

struct mt_node *mt_old_op(struct mt_old *b, struct mt_old_shape shape, struct mt_node *x,
                          struct mt_node *y)
{
    struct mt_node *const sources[MT_OLD_SOURCES] = {x, y};
    return mt_old_make(b, shape, sources);
}

struct mt_node *mt_old_inplace(struct mt_old *b, struct mt_old_shape shape, struct mt_node *x,
                               struct mt_node *y)
{
    struct mt_node *node = mt_old_op(b, shape, x, y);
    node->op = MT_OP_INPLACE;
    return node;
}

struct mt_node *mt_old_view(struct mt_old *b, struct mt_old_shape shape, struct mt_node *x)
{
    struct mt_node *node = new_node(b, MT_OP_VIEW, shape);
    node->sources[0] = x;
    node->view_of = x->view_of ? x->view_of : x;
    return node;
}

struct mt_node *mt_old_slice(struct mt_old *b, struct mt_old_shape shape, struct mt_node *x)
{
    struct mt_node *view = mt_old_view(b, shape, x);
    view->nb[3]++; /* no other tensor is laid out like it */
    return view;
}

struct mt_node *mt_old_weight(struct mt_old *b, int backend, uint64_t bytes)
{
    struct mt_node *node =
        mt_op_external(b->graph, MT_TYPE_F32, (uint64_t[4]){1, 1, 1, 1}, backend);
    node->flags |= MT_NODE_WEIGHT;
    node->bytes = bytes;
    return node;
}

struct mt_node *mt_old_cache(struct mt_old *b, int backend)
{
    return mt_op_external(b->graph, MT_TYPE_F32, (uint64_t[4]){1, 1, 1, 1}, backend);
}

struct mt_node *mt_old_small_weight(struct mt_old *b, uint64_t elements)
{
    return mt_old_weight(b, b->backend, elements * 4);
}

struct mt_node *mt_old_streamed(const struct mt_old *b, struct mt_node *y)
{
    uint64_t rows = b->rules.ik ? y->ne[1] : y->ne[1] * y->ne[2];
    if (b->host && b->backend == b->host && b->rules.stream_batch && rows >= b->rules.stream_batch)
        y->backend = 0;
    return y;
}

struct mt_node *mt_old_product(struct mt_old *b, uint64_t weight_bytes, struct mt_node *x,
                               uint64_t ne0)
{
    struct mt_node *w = mt_old_weight(b, b->backend, weight_bytes);
    return mt_old_streamed(b, mt_old_op(b, mt_old_f32(ne0, b->tokens, 1), w, x));
}

struct mt_node *mt_old_matrix(struct mt_old *b, enum mt_old_weight weight, struct mt_node *x,
                              uint64_t ne0)
{
    return mt_old_product(b, b->weights[weight], x, ne0);
}

struct mt_node *mt_old_norm(struct mt_old *b, struct mt_node *x, struct mt_old_shape shape)
{
    if (b->rules.ik && !(b->traits & MT_OLD_PLAIN_NORM))
        return mt_old_streamed(b, mt_old_op(b, shape, x, mt_old_small_weight(b, shape.ne[0])));
    struct mt_node *norm = b->traits & MT_OLD_PLAIN_NORM ? mt_old_op(b, shape, x, NULL)
                                                         : mt_old_inplace(b, shape, x, NULL);
    if (b->plan->all_on_devices)
        norm->backend = (int8_t)b->backend;
    return mt_old_inplace(b, shape, norm, mt_old_small_weight(b, shape.ne[0]));
}

struct mt_node *mt_old_rope(struct mt_old *b, struct mt_node *x, struct mt_old_shape shape)
{
    return mt_old_inplace(b, shape, x, b->positions);
}

static void store(struct mt_old *b, struct mt_node *what)
{
    struct mt_node *part = mt_old_slice(b, mt_old_f32(1, 1, 1), mt_old_cache(b, b->cache_backend));
    mt_graph_expand(b->graph, mt_op_copy(b->graph, what, part));
}

static struct mt_node *cached(struct mt_old *b, uint64_t ne0, uint64_t heads)
{
    struct mt_node *cache = mt_old_cache(b, b->cache_backend);
    return mt_old_slice(b, mt_old_f16(ne0, b->kv_cells, heads), cache);
}

/* Scores of all heads at once, or of one head after the other where a limit is set and there are
 * as many heads of keys as of queries. */
static struct mt_node *attention_without_flash(struct mt_old *b, struct mt_node *q)
{
    const struct mt_model_layer *l = b->layer;
    struct mt_old_shape scores = mt_old_f32(b->kv_cells, b->tokens, l->heads);
    struct mt_node *k = cached(b, l->key_size, l->kv_heads);
    struct mt_node *kq = mt_old_op(b, scores, k, q);
    kq = mt_old_inplace(b, scores, kq, b->mask);
    struct mt_node *v = cached(b, l->value_size, l->kv_heads);
    struct mt_node *kqv = mt_old_op(b, mt_old_f32(l->value_size, b->tokens, l->heads), v, kq);
    struct mt_node *merged = mt_old_slice(b, mt_old_f32(l->value_size, l->heads, b->tokens), kqv);
    return mt_old_op(b, mt_old_f32(l->value_size * l->heads, b->tokens, 1), merged, NULL);
}

struct mt_node *mt_old_attention(struct mt_old *b, struct mt_node *q, struct mt_node *k,
                                 struct mt_node *v)
{
    const struct mt_model_layer *l = b->layer;
    mt_graph_expand(b->graph, q);
    mt_graph_expand(b->graph, k);
    mt_graph_expand(b->graph, v);
    store(b, k);
    store(b, b->plan->flash_attention
                 ? v
                 : mt_old_slice(b, mt_old_f32(b->tokens, l->value_size * l->kv_heads, 1), v));
    struct mt_node *permuted = mt_old_slice(b, mt_old_f32(l->key_size, b->tokens, l->heads), q);
    struct mt_node *out;
    if (b->plan->flash_attention) {
        struct mt_node *const sources[MT_OLD_SOURCES] = {
            permuted, cached(b, l->key_size, l->kv_heads), cached(b, l->value_size, l->kv_heads),
            b->mask, NULL};
        out = mt_old_make(b, mt_old_f32(l->value_size, l->heads, b->tokens), sources);
        out = mt_old_view(b, mt_old_f32(l->value_size * l->heads, b->tokens, 1), out);
    } else {
        out = attention_without_flash(b, permuted);
    }
    mt_graph_expand(b->graph, out);
    return out;
}

static struct mt_node *projected(struct mt_old *b, enum mt_old_weight weight, struct mt_node *x,
                                 uint64_t ne0)
{
    struct mt_node *y = mt_old_matrix(b, weight, x, ne0);
    if (b->traits & MT_OLD_QKV_BIAS)
        y = mt_old_streamed(
            b, mt_old_inplace(b, mt_old_f32(ne0, b->tokens, 1), y, mt_old_small_weight(b, ne0)));
    return y;
}

static struct mt_node *heads_of(struct mt_old *b, struct mt_node *x, uint64_t size, uint64_t heads)
{
    struct mt_old_shape shape = mt_old_f32(size, heads, b->tokens);
    struct mt_node *y = mt_old_view(b, shape, x);
    if (b->traits & MT_OLD_QK_NORM)
        y = mt_old_streamed(b, mt_old_norm(b, y, shape));
    return mt_old_rope(b, y, shape);
}

/* Queries, keys and values of one matrix are copied apart. */
static struct mt_node *part_of(struct mt_old *b, struct mt_node *all, uint64_t ne0)
{
    struct mt_old_shape shape = mt_old_f32(ne0, b->tokens, 1);
    return mt_old_op(b, shape, mt_old_slice(b, shape, all), NULL);
}

struct mt_node *mt_old_attention_block(struct mt_old *b, struct mt_node *x)
{
    const struct mt_model_layer *l = b->layer;
    uint64_t queries = l->heads * l->key_size;
    uint64_t keys = l->kv_heads * l->key_size;
    uint64_t values = l->kv_heads * l->value_size;
    struct mt_node *q;
    struct mt_node *k;
    struct mt_node *v;
    b->graph->part = MT_OLD_ATTENTION;
    if (b->traits & MT_OLD_FUSED_QKV) {
        struct mt_node *all = projected(b, MT_OLD_ATTN_QKV, x, queries + keys + values);
        q = part_of(b, all, queries);
        k = part_of(b, all, keys);
        v = part_of(b, all, values);
    } else {
        q = projected(b, MT_OLD_ATTN_Q, x, queries);
        k = projected(b, MT_OLD_ATTN_K, x, keys);
        v = projected(b, MT_OLD_ATTN_V, x, values);
    }
    q = heads_of(b, q, l->key_size, l->heads);
    k = heads_of(b, k, l->key_size, l->kv_heads);
    struct mt_node *out = mt_old_attention(b, q, k, v);
    if (b->traits & MT_OLD_SUB_NORM)
        out = mt_old_norm(b, out, mt_old_f32(l->heads * l->value_size, b->tokens, 1));
    return mt_old_matrix(b, MT_OLD_ATTN_OUTPUT, out, b->d->embedding_length);
}

/* The product of a gate and what it lets through. */
static struct mt_node *gated(struct mt_old *b, struct mt_old_shape shape, struct mt_node *gate,
                             struct mt_node *up)
{
    if (b->rules.ik)
        return mt_old_op(b, shape, gate, up);
    struct mt_node *silu = mt_old_inplace(b, shape, gate, NULL);
    return mt_old_inplace(b, shape, silu, up);
}

static struct mt_node *fused_gate(struct mt_old *b, struct mt_node *x, uint64_t width)
{
    struct mt_old_shape shape = mt_old_f32(width, b->tokens, 1);
    struct mt_node *up = mt_old_matrix(b, MT_OLD_FFN_UP, x, 2 * width);
    if (b->rules.ik)
        return mt_old_op(b, shape, up, NULL);
    struct mt_node *first = part_of(b, up, width);
    struct mt_node *second = part_of(b, up, width);
    first = mt_old_inplace(b, shape, first, NULL);
    return mt_old_inplace(b, shape, first, second);
}

static struct mt_node *ffn_of(struct mt_old *b, struct mt_node *x, uint64_t width,
                              enum mt_old_weight up, enum mt_old_weight gate,
                              enum mt_old_weight down)
{
    struct mt_old_shape shape = mt_old_f32(width, b->tokens, 1);
    struct mt_node *y;
    b->graph->part = MT_OLD_FFN;
    if (b->traits & MT_OLD_FUSED_GATE) {
        y = fused_gate(b, x, width);
    } else {
        struct mt_node *upper = mt_old_matrix(b, up, x, width);
        struct mt_node *gates = mt_old_matrix(b, gate, x, width);
        y = gated(b, shape, gates, upper);
    }
    if (b->traits & MT_OLD_SUB_NORM)
        y = mt_old_norm(b, y, shape);
    return mt_old_matrix(b, down, y, b->d->embedding_length);
}

struct mt_node *mt_old_ffn(struct mt_old *b, struct mt_node *x)
{
    return ffn_of(b, x, b->layer->ff_length, MT_OLD_FFN_UP, MT_OLD_FFN_GATE, MT_OLD_FFN_DOWN);
}

/* An operation of experts, of one or two matrices. */
static struct mt_node *expert_op(struct mt_old *b, struct mt_old_shape shape,
                                 enum mt_old_weight one, enum mt_old_weight two, struct mt_node *x,
                                 struct mt_node *chosen)
{
    struct mt_node *const sources[MT_OLD_SOURCES] = {
        mt_old_weight(b, b->expert_backend, b->weights[one]),
        two == MT_OLD_N_WEIGHTS ? NULL : mt_old_weight(b, b->expert_backend, b->weights[two]), x,
        chosen, NULL};
    struct mt_node *y = mt_old_make(b, shape, sources);
    uint64_t rows = b->rules.stream_experts_share
                        ? b->tokens * b->layer->experts_used / b->layer->experts
                        : b->tokens;
    if (b->host && b->expert_backend == b->host && b->rules.stream_experts &&
        b->rules.stream_batch && rows >= b->rules.stream_batch)
        y->backend = 0;
    return y;
}

/* Which experts a token goes to, and their weights: small tensors. */
static struct mt_node *choose(struct mt_old *b, struct mt_node *x, struct mt_node **weights)
{
    const struct mt_model_layer *l = b->layer;
    struct mt_old_shape scores = mt_old_f32(l->experts, b->tokens, 1);
    struct mt_node *logits =
        mt_old_op(b, scores, mt_old_small_weight(b, l->experts * b->d->embedding_length), x);
    struct mt_node *probabilities = mt_old_inplace(b, scores, logits, NULL);
    struct mt_node *biased = probabilities;
    if (b->traits & MT_OLD_SCORE_BIAS)
        biased = mt_old_inplace(b, scores, probabilities, mt_old_small_weight(b, l->experts));
    struct mt_node *sorted = mt_old_op(b, scores, biased, NULL);
    struct mt_node *chosen = mt_old_slice(b, mt_old_f32(l->experts_used, b->tokens, 1), sorted);
    struct mt_old_shape flat = mt_old_f32(l->experts_used, b->tokens, 1);
    struct mt_old_shape deep = mt_old_f32(1, l->experts_used, b->tokens);
    struct mt_node *rows = mt_old_op(
        b, deep, mt_old_view(b, mt_old_f32(1, l->experts, b->tokens), probabilities), chosen);
    struct mt_node *rows_flat = mt_old_view(b, flat, rows);
    struct mt_node *sum = mt_old_op(b, mt_old_f32(1, b->tokens, 1), rows_flat, NULL);
    struct mt_node *normed = mt_old_inplace(b, flat, rows_flat, sum);
    *weights = mt_old_view(b, deep, normed);
    return chosen;
}

/* The experts' results of a token are added up. */
static struct mt_node *sum_of(struct mt_old *b, struct mt_node *experts)
{
    uint64_t width = b->d->embedding_length;
    struct mt_old_shape shape = mt_old_f32(width, b->tokens, 1);
    struct mt_node *sum = mt_old_slice(b, shape, experts);
    if (b->rules.ik)
        return mt_old_op(b, shape, sum, NULL);
    for (uint64_t i = 1; i < b->layer->experts_used && !b->graph->failed; i++)
        sum = mt_old_inplace(b, shape, sum, mt_old_slice(b, shape, experts));
    return sum;
}

static struct mt_node *routed(struct mt_old *b, struct mt_node *x)
{
    const struct mt_model_layer *l = b->layer;
    uint64_t width = b->d->embedding_length;
    struct mt_old_shape wide = mt_old_f32(l->expert_ff_length, l->experts_used, b->tokens);
    struct mt_old_shape out = mt_old_f32(width, l->experts_used, b->tokens);
    struct mt_node *weights;
    struct mt_node *chosen = choose(b, x, &weights);
    struct mt_node *rows = mt_old_view(b, mt_old_f32(width, 1, b->tokens), x);
    struct mt_node *y;
    b->graph->part = MT_OLD_EXPERTS;
    if (b->rules.fused_experts) {
        y = expert_op(b, wide, MT_OLD_FFN_UP_EXPS, MT_OLD_FFN_GATE_EXPS, rows, chosen);
    } else {
        struct mt_node *up = expert_op(b, wide, MT_OLD_FFN_UP_EXPS, MT_OLD_N_WEIGHTS, rows, chosen);
        struct mt_node *gate =
            expert_op(b, wide, MT_OLD_FFN_GATE_EXPS, MT_OLD_N_WEIGHTS, rows, chosen);
        y = gated(b, wide, gate, up);
    }
    y = expert_op(b, out, MT_OLD_FFN_DOWN_EXPS, MT_OLD_N_WEIGHTS, y, chosen);
    y = mt_old_inplace(b, out, y, weights);
    return sum_of(b, y);
}

struct mt_node *mt_old_experts(struct mt_old *b, struct mt_node *x)
{
    struct mt_node *y = routed(b, x);
    if (!b->layer->shared_ff_length)
        return y;
    struct mt_node *shared = ffn_of(b, x, b->layer->shared_ff_length, MT_OLD_FFN_UP_SHEXP,
                                    MT_OLD_FFN_GATE_SHEXP, MT_OLD_FFN_DOWN_SHEXP);
    return mt_old_inplace(b, mt_old_f32(b->d->embedding_length, b->tokens, 1), y, shared);
}
