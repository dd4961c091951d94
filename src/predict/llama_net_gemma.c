/* SPDX-License-Identifier: MIT */
/* The graphs of Gemma 3n and Gemma 4: inputs of their own for each layer, caches shared between
 * layers, several streams of the hidden state. */
#include "predict/llama_net.h"

/* Layers of Gemma 3n whose feed-forward keeps the largest activations only. */
#define SPARSE_LAYERS 10
/* Streams of the hidden state where the file does not say. */
#define ALTUP_INPUTS 4

static uint64_t streams_of(const struct mt_net *net)
{
    uint64_t n = net->d->altup_inputs;
    return n > 1 && n <= 64 ? n : ALTUP_INPUTS;
}

/* Width of a layer's own input; the norm of the projection has it where the file does not say. */
static uint64_t own_width(const struct mt_net *net)
{
    const struct mt_net_weight *norm =
        &net->layers[net->n_layers].weights[MT_SLOT_PER_LAYER_PROJ_NORM];
    uint64_t width = net->d->per_layer_embedding_length;
    return !width && norm->present ? norm->ne[0] : width;
}

static struct mt_node *slice(struct mt_net *net, struct mt_node *x)
{
    return mt_op_view(net->graph, x, (uint64_t[4]){x->ne[0], x->ne[1], 1, 1},
                      (uint64_t[4]){x->nb[0], x->nb[1], x->nb[2], x->nb[2]});
}

static struct mt_node *per_layer_rows(struct mt_net *net)
{
    struct mt_graph *g = net->graph;
    uint64_t width = own_width(net) * net->n_layers;
    struct mt_node *tokens = mt_op_input(g, MT_TYPE_I32, (uint64_t[4]){net->tokens, 1, 1, 1});
    struct mt_node *table = mt_net_weight(net, net->n_layers, MT_SLOT_PER_LAYER_EMBEDDING, width,
                                          net->d->vocabulary, 1);
    return mt_op_get_rows(g, table, tokens);
}

/* `rows` were looked up before anything else, or are NULL. */
static void per_layer_inputs(struct mt_net *net, struct mt_node *x, struct mt_node *rows)
{
    struct mt_graph *g = net->graph;
    size_t own = net->n_layers;
    uint64_t each = own_width(net);
    uint64_t width = each * net->n_layers;
    int is_first = rows != NULL;
    rows = is_first ? mt_op_map(g, rows, NULL) : per_layer_rows(net);
    rows = mt_op_reshape(g, rows, each, net->n_layers, net->tokens, 1);
    if (!is_first) {
        rows = mt_op_map(g, rows, NULL);
        mt_graph_expand(g, rows);
    }
    struct mt_node *projected = mt_net_project(net, x, own, MT_SLOT_PER_LAYER_MODEL_PROJ, width);
    projected = mt_op_map(g, projected, NULL);
    projected = mt_op_reshape(g, projected, each, net->n_layers, net->tokens, 1);
    projected = mt_net_norm(net, projected, own, MT_SLOT_PER_LAYER_PROJ_NORM, 0);
    rows = mt_op_map(g, mt_op_map(g, projected, rows), NULL);
    net->per_layer = mt_op_like(g, mt_op_permute(g, rows, 0, 2, 1, 3));
}

static struct mt_node *gated_by_layer(struct mt_net *net, struct mt_node *x, size_t il,
                                      struct mt_node *own)
{
    struct mt_graph *g = net->graph;
    uint64_t embedding = net->d->embedding_length;
    x = mt_net_project(net, x, il, MT_SLOT_PER_LAYER_GATE, own_width(net));
    x = mt_op_map(g, mt_op_map(g, x, NULL), own);
    x = mt_net_project(net, x, il, MT_SLOT_PER_LAYER_PROJ, embedding);
    return mt_net_norm(net, x, il, MT_SLOT_PER_LAYER_POST_NORM, 0);
}

static struct mt_node *queries(struct mt_net *net, struct mt_node *x, size_t il)
{
    const struct mt_model_layer *l = &net->d->layers[il];
    struct mt_node *q = mt_net_project(net, x, il, MT_SLOT_ATTN_Q, l->heads * l->key_size);
    q = mt_op_reshape(net->graph, q, l->key_size, l->heads, x->ne[1], 1);
    return mt_net_rope(net, mt_net_norm(net, q, il, MT_SLOT_ATTN_Q_NORM, 0), il);
}

static struct mt_node *gemma_attention(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    const struct mt_model_layer *l = &net->d->layers[il];
    uint64_t n = x->ne[1];
    g->part = MT_PART_ATTENTION;
    struct mt_net_qkv qkv = {.q = queries(net, x, il)};
    if (l->cache_layer == il) {
        qkv.k = mt_net_project(net, x, il, MT_SLOT_ATTN_K, l->kv_heads * l->key_size);
        qkv.v = qkv.k; /* global layers of the large models have no values of their own */
        if (mt_net_has(net, il, MT_SLOT_ATTN_V) || net->d->format != MT_MODEL_GGUF)
            qkv.v = mt_net_project(net, x, il, MT_SLOT_ATTN_V, l->kv_heads * l->value_size);
        qkv.k = mt_op_reshape(g, qkv.k, l->key_size, l->kv_heads, n, 1);
        qkv.v = mt_op_reshape(g, qkv.v, l->value_size, l->kv_heads, n, 1);
        qkv.k = mt_net_norm(net, qkv.k, il, MT_SLOT_ATTN_K_NORM, 0);
        qkv.v = mt_op_map(g, qkv.v, NULL);
        qkv.k = mt_net_rope(net, qkv.k, il);
    }
    x = mt_net_attend(net, &qkv, il, NULL);
    return mt_net_project(net, x, il, MT_SLOT_ATTN_OUT, net->d->embedding_length);
}

static struct mt_node *gemma4_experts(struct mt_net *net, struct mt_node *in, size_t il,
                                      unsigned traits)
{
    static const enum mt_slot dense[3] = {MT_SLOT_FFN_UP, MT_SLOT_FFN_GATE, MT_SLOT_FFN_DOWN};
    struct mt_graph *g = net->graph;
    const struct mt_model_layer *l = &net->d->layers[il];
    struct mt_node *beside = mt_net_norm(net, in, il, MT_SLOT_FFN_NORM, 0);
    beside = mt_net_dense_ffn(net, beside, il, dense, l->ff_length, 0);
    beside = mt_net_norm(net, beside, il, MT_SLOT_FFN_POST_NORM_1, 0);
    struct mt_node *x = mt_net_norm(net, in, il, MT_SLOT_FFN_PRE_NORM_2, 0);
    struct mt_node *logits = mt_op_map(g, mt_op_map(g, in, NULL), NULL);
    logits = mt_op_map(g, logits, mt_net_maybe(net, il, MT_SLOT_ROUTER_SCALE));
    logits = mt_net_project(net, logits, il, MT_SLOT_ROUTER, l->experts);
    x = mt_net_experts(net, x, logits, il, traits);
    x = mt_net_norm(net, x, il, MT_SLOT_FFN_POST_NORM_2, 0);
    return mt_op_map(g, beside, x);
}

static struct mt_node *gemma4_ffn(struct mt_net *net, struct mt_node *in, size_t il,
                                  unsigned traits)
{
    struct mt_node *x;
    net->graph->part = MT_PART_FFN;
    if (mt_net_has(net, il, MT_SLOT_ROUTER)) {
        x = gemma4_experts(net, in, il, traits);
    } else {
        x = mt_net_norm(net, in, il, MT_SLOT_FFN_NORM, 0);
        x = mt_net_ffn(net, x, il, traits);
    }
    x = mt_net_norm_unpinned(net, x, il, MT_SLOT_FFN_POST_NORM);
    return mt_op_map(net->graph, x, in);
}

static struct mt_node *gemma4_layer(struct mt_net *net, struct mt_node *in, size_t il,
                                    unsigned traits)
{
    struct mt_graph *g = net->graph;
    int early = il == net->n_layers - 1 && !(traits & MT_NET_ROWS_LATE);
    struct mt_node *x = mt_net_norm(net, in, il, MT_SLOT_ATTN_NORM, 0);
    x = gemma_attention(net, x, il);
    if (early) {
        x = mt_op_get_rows(g, x, net->output_rows);
        in = mt_op_get_rows(g, in, net->output_rows);
    }
    x = mt_net_norm(net, x, il, MT_SLOT_ATTN_POST_NORM, 0);
    x = gemma4_ffn(net, mt_op_map(g, x, in), il, traits);
    if (net->per_layer) {
        struct mt_node *own = slice(net, net->per_layer);
        if (early)
            own = mt_op_get_rows(g, own, net->output_rows);
        x = mt_op_map(g, x, gated_by_layer(net, x, il, own));
    }
    struct mt_node *scale = mt_net_maybe(net, il, MT_SLOT_OUT_SCALE);
    return scale ? mt_op_map(g, x, scale) : x;
}

void mt_net_build_gemma4(struct mt_net *net, unsigned traits)
{
    struct mt_node *rows = NULL;
    net->windows_rotate_plainly = 1;
    if (own_width(net) && net->newer & MT_NEWER_EMBEDDINGS) {
        rows = per_layer_rows(net);
        mt_graph_expand(net->graph, rows);
    }
    struct mt_node *x = mt_net_embedding(net, traits);
    if (own_width(net))
        per_layer_inputs(net, x, rows);
    for (size_t i = 0; i < net->n_layers; i++)
        x = gemma4_layer(net, x, i, traits);
    mt_net_output(net, x, traits);
}

static struct mt_node *magnitude(struct mt_net *net, struct mt_node *x)
{
    struct mt_graph *g = net->graph;
    return mt_op_map(g, mt_op_sum_rows(g, mt_op_map(g, x, NULL)), NULL);
}

/* Gives x the magnitude of another. */
static struct mt_node *as_loud(struct mt_net *net, struct mt_node *x, struct mt_node *target)
{
    struct mt_graph *g = net->graph;
    struct mt_node *own = magnitude(net, x);
    return mt_op_map(g, mt_op_map(g, x, target), own);
}

static struct mt_node *stacked(struct mt_net *net, struct mt_node *x)
{
    struct mt_graph *g = net->graph;
    uint64_t embedding = x->ne[0];
    uint64_t others = streams_of(net) - 1;
    struct mt_node *target = magnitude(net, x);
    struct mt_node *copies = mt_op_repeat(g, x, embedding, net->tokens, others, 1);
    struct mt_node *weight =
        mt_net_weight(net, net->n_layers, MT_SLOT_ALTUP_PROJ, embedding, embedding, others);
    struct mt_node *added = as_loud(net, mt_op_mul_mat(g, weight, copies), target);
    return mt_op_concat(g, x, added, 2);
}

static struct mt_node *modalities(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    x = mt_op_map(g, mt_net_norm(net, x, il, MT_SLOT_ALTUP_ROUTER_NORM, 0), NULL);
    return mt_op_map(g, mt_net_project(net, x, il, MT_SLOT_ALTUP_ROUTER, streams_of(net)), NULL);
}

static struct mt_node *predicted(struct mt_net *net, struct mt_node *in, size_t il)
{
    struct mt_graph *g = net->graph;
    uint64_t n = streams_of(net);
    struct mt_node *coefficients = modalities(net, slice(net, in), il);
    coefficients = mt_net_project(net, coefficients, il, MT_SLOT_ALTUP_PREDICT, n * n);
    coefficients = mt_op_reshape(g, coefficients, n, n, net->tokens, 1);
    struct mt_node *turned = mt_op_like(g, mt_op_permute(g, in, 1, 2, 0, 3));
    struct mt_node *x = mt_op_mul_mat(g, turned, coefficients);
    x = mt_op_like(g, mt_op_permute(g, x, 0, 2, 1, 3));
    return mt_op_map(g, x, in);
}

static struct mt_node *corrected(struct mt_net *net, struct mt_node *predictions,
                                 struct mt_node *activated, size_t il)
{
    struct mt_graph *g = net->graph;
    uint64_t n = streams_of(net);
    struct mt_node *how = modalities(net, activated, il);
    struct mt_node *news = mt_op_map(g, activated, slice(net, predictions));
    struct mt_node *coefficients = mt_net_project(net, how, il, MT_SLOT_ALTUP_CORRECT, n);
    coefficients = mt_op_transpose(g, mt_op_map(g, coefficients, NULL));
    coefficients = mt_op_cont(g, coefficients, 1, net->tokens, n);
    news = mt_op_repeat(g, news, activated->ne[0], net->tokens, n, 1);
    return mt_op_map(g, mt_op_map(g, news, coefficients), predictions);
}

static struct mt_node *laurel(struct mt_net *net, struct mt_node *in, size_t il)
{
    struct mt_node *left = mt_net_maybe(net, il, MT_SLOT_LAUREL_L);
    uint64_t rank = left ? left->ne[1] : 64;
    struct mt_node *x = mt_net_project(net, in, il, MT_SLOT_LAUREL_L, rank);
    x = mt_net_project(net, x, il, MT_SLOT_LAUREL_R, in->ne[0]);
    x = mt_net_norm(net, x, il, MT_SLOT_LAUREL_POST_NORM, 0);
    return mt_op_map(net->graph, x, in);
}

/* Keeps what lies some deviations above the mean. */
static struct mt_node *largest_only(struct mt_net *net, struct mt_node *x)
{
    struct mt_graph *g = net->graph;
    struct mt_node *mean = mt_op_sum_rows(g, x);
    struct mt_node *square = mt_op_map(g, mt_op_map(g, x, mean), NULL);
    struct mt_node *deviation = mt_op_map(g, mt_op_sum_rows(g, square), NULL);
    deviation = mt_op_map(g, deviation, NULL);
    struct mt_node *cutoff = mt_op_map(g, mean, mt_op_map(g, deviation, NULL));
    return mt_op_map(g, mt_op_map(g, x, cutoff), NULL);
}

static struct mt_node *gemma3n_ffn(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    uint64_t width = net->d->layers[il].ff_length;
    uint64_t embedding = x->ne[0];
    g->part = MT_PART_FFN;
    struct mt_node *up = mt_net_project(net, x, il, MT_SLOT_FFN_UP, width);
    struct mt_node *gate = mt_net_project(net, x, il, MT_SLOT_FFN_GATE, width);
    if (il < SPARSE_LAYERS)
        gate = largest_only(net, gate);
    x = mt_op_map(g, up, mt_op_map(g, gate, NULL));
    x = mt_net_project(net, x, il, MT_SLOT_FFN_DOWN, embedding);
    return mt_net_norm_unpinned(net, x, il, MT_SLOT_FFN_POST_NORM);
}

static struct mt_node *gemma3n_attention(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    const struct mt_model_layer *l = &net->d->layers[il];
    if (l->cache_layer != il)
        return gemma_attention(net, x, il);
    g->part = MT_PART_ATTENTION;
    struct mt_net_qkv qkv = mt_net_qkv(net, x, il);
    qkv.q = mt_net_rope(net, mt_net_norm(net, qkv.q, il, MT_SLOT_ATTN_Q_NORM, 0), il);
    qkv.k = mt_net_rope(net, mt_net_norm(net, qkv.k, il, MT_SLOT_ATTN_K_NORM, 0), il);
    qkv.v = mt_op_map(g, qkv.v, NULL);
    x = mt_net_attend(net, &qkv, il, NULL);
    return mt_net_project(net, x, il, MT_SLOT_ATTN_OUT, net->d->embedding_length);
}

/* Adds the layer's own input to all streams but the first. */
static struct mt_node *with_layer_input(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    uint64_t embedding = x->ne[0];
    struct mt_node *first = slice(net, x);
    struct mt_node *scale = mt_net_weight(net, il, MT_SLOT_ALTUP_CORRECT_SCALE, embedding, 1, 1);
    first = gated_by_layer(net, mt_op_map(g, first, scale), il, slice(net, net->per_layer));
    struct mt_node *rest =
        mt_op_view(g, x, (uint64_t[4]){embedding, x->ne[1], x->ne[2] - 1, 1}, x->nb);
    return mt_op_concat(g, slice(net, x), mt_op_map(g, rest, first), 2);
}

static struct mt_node *gemma3n_layer(struct mt_net *net, struct mt_node *in, size_t il)
{
    struct mt_graph *g = net->graph;
    struct mt_node *predictions = predicted(net, in, il);
    struct mt_node *active = slice(net, predictions);
    struct mt_node *x = mt_net_norm(net, active, il, MT_SLOT_ATTN_NORM, 0);
    struct mt_node *low_rank = laurel(net, x, il);
    x = gemma3n_attention(net, x, il);
    x = mt_net_norm(net, x, il, MT_SLOT_ATTN_POST_NORM, 0);
    x = mt_op_map(g, x, active);
    struct mt_node *both = mt_op_map(g, mt_op_map(g, x, low_rank), NULL);
    x = mt_net_norm(net, both, il, MT_SLOT_FFN_NORM, 0);
    x = mt_op_map(g, gemma3n_ffn(net, x, il), both);
    return with_layer_input(net, corrected(net, predictions, x, il), il);
}

static struct mt_node *merged(struct mt_net *net, struct mt_node *x)
{
    struct mt_graph *g = net->graph;
    uint64_t embedding = x->ne[0];
    uint64_t others = streams_of(net) - 1;
    struct mt_node *target = magnitude(net, slice(net, x));
    struct mt_node *rest = mt_op_view(g, x, (uint64_t[4]){embedding, x->ne[1], others, 1}, x->nb);
    struct mt_node *weight =
        mt_net_weight(net, net->n_layers, MT_SLOT_ALTUP_UNEMBED, embedding, embedding, others);
    rest = as_loud(net, mt_op_mul_mat(g, weight, rest), target);
    x = slice(net, x);
    for (uint64_t i = 0; i < others; i++)
        x = mt_op_map(g, x, slice(net, rest));
    return mt_op_map(g, x, NULL);
}

void mt_net_build_gemma3n(struct mt_net *net, unsigned traits)
{
    struct mt_node *x = mt_net_embedding(net, traits);
    per_layer_inputs(net, x, NULL);
    x = stacked(net, x);
    for (size_t i = 0; i < net->n_layers; i++)
        x = gemma3n_layer(net, x, i);
    x = mt_op_get_rows(net->graph, merged(net, x), net->output_rows);
    mt_net_output(net, x, traits);
}
