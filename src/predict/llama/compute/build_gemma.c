/* SPDX-License-Identifier: MIT */
/* The graphs of Gemma 3n and Gemma 4: inputs of their own for each layer, caches shared between
 * layers, several streams of the hidden state. */
#include "build.h"
#include "predict/llama/internal.h"

/* Layers of Gemma 3n whose feed-forward keeps the largest activations only. */
#define SPARSE_LAYERS 10
/* Streams of the hidden state where the file does not say. */
#define ALTUP_INPUTS 4

static uint64_t streams_of(const struct mt_build *build)
{
    uint64_t n = build->d->altup_inputs;
    return n > 1 && n <= 64 ? n : ALTUP_INPUTS;
}

/* Width of a layer's own input; the norm of the projection has it where the file does not say. */
static uint64_t own_width(const struct mt_build *build)
{
    const struct mt_build_weight *norm =
        &build->layers[build->n_layers].weights[MT_SLOT_PER_LAYER_PROJ_NORM];
    uint64_t width = build->d->per_layer_embedding_length;
    return !width && norm->present ? norm->ne[0] : width;
}

static struct mt_node *slice(struct mt_build *build, struct mt_node *x)
{
    return mt_op_view(build->graph, x, (uint64_t[4]){x->ne[0], x->ne[1], 1, 1},
                      (uint64_t[4]){x->nb[0], x->nb[1], x->nb[2], x->nb[2]});
}

static struct mt_node *per_layer_rows(struct mt_build *build)
{
    struct mt_graph *g = build->graph;
    uint64_t width = own_width(build) * build->n_layers;
    struct mt_node *tokens = mt_op_input(g, MT_TYPE_I32, (uint64_t[4]){build->tokens, 1, 1, 1});
    struct mt_node *table = mt_build_weight(build, build->n_layers, MT_SLOT_PER_LAYER_EMBEDDING,
                                            width, build->d->vocabulary, 1);
    return mt_op_get_rows(g, table, tokens);
}

/* `rows` were looked up before anything else, or are NULL. */
static void per_layer_inputs(struct mt_build *build, struct mt_node *x, struct mt_node *rows)
{
    struct mt_graph *g = build->graph;
    size_t own = build->n_layers;
    uint64_t each = own_width(build);
    uint64_t width = each * build->n_layers;
    int is_first = rows != NULL;
    rows = is_first ? mt_op_map(g, rows, NULL) : per_layer_rows(build);
    rows = mt_op_reshape(g, rows, each, build->n_layers, build->tokens, 1);
    if (!is_first) {
        rows = mt_op_map(g, rows, NULL);
        mt_graph_expand(g, rows);
    }
    struct mt_node *projected =
        mt_build_project(build, x, own, MT_SLOT_PER_LAYER_MODEL_PROJ, width);
    projected = mt_op_map(g, projected, NULL);
    projected = mt_op_reshape(g, projected, each, build->n_layers, build->tokens, 1);
    projected = mt_build_norm(build, projected, own, MT_SLOT_PER_LAYER_PROJ_NORM, 0);
    rows = mt_op_map(g, mt_op_map(g, projected, rows), NULL);
    build->per_layer = mt_op_like(g, mt_op_permute(g, rows, 0, 2, 1, 3));
}

static struct mt_node *gated_by_layer(struct mt_build *build, struct mt_node *x, size_t il,
                                      struct mt_node *own)
{
    struct mt_graph *g = build->graph;
    uint64_t embedding = build->d->embedding_length;
    x = mt_build_project(build, x, il, MT_SLOT_PER_LAYER_GATE, own_width(build));
    x = mt_op_map(g, mt_op_map(g, x, NULL), own);
    x = mt_build_project(build, x, il, MT_SLOT_PER_LAYER_PROJ, embedding);
    return mt_build_norm(build, x, il, MT_SLOT_PER_LAYER_POST_NORM, 0);
}

static struct mt_node *queries(struct mt_build *build, struct mt_node *x, size_t il)
{
    const struct mt_model_layer *l = &build->d->layers[il];
    struct mt_node *q = mt_build_project(build, x, il, MT_SLOT_ATTN_Q, l->heads * l->key_size);
    q = mt_op_reshape(build->graph, q, l->key_size, l->heads, x->ne[1], 1);
    return mt_build_rope(build, mt_build_norm(build, q, il, MT_SLOT_ATTN_Q_NORM, 0), il);
}

static struct mt_node *gemma_attention(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_layer *l = &build->d->layers[il];
    uint64_t n = x->ne[1];
    g->part = MT_PART_ATTENTION;
    struct mt_build_qkv qkv = {.q = queries(build, x, il)};
    if (l->cache_layer == il) {
        qkv.k = mt_build_project(build, x, il, MT_SLOT_ATTN_K, l->kv_heads * l->key_size);
        qkv.v = qkv.k; /* global layers of the large models have no values of their own */
        if (mt_build_has(build, il, MT_SLOT_ATTN_V) || build->d->format != MT_MODEL_GGUF)
            qkv.v = mt_build_project(build, x, il, MT_SLOT_ATTN_V, l->kv_heads * l->value_size);
        qkv.k = mt_op_reshape(g, qkv.k, l->key_size, l->kv_heads, n, 1);
        qkv.v = mt_op_reshape(g, qkv.v, l->value_size, l->kv_heads, n, 1);
        qkv.k = mt_build_norm(build, qkv.k, il, MT_SLOT_ATTN_K_NORM, 0);
        qkv.v = mt_op_map(g, qkv.v, NULL);
        qkv.k = mt_build_rope(build, qkv.k, il);
    }
    x = mt_build_attend(build, &qkv, il, NULL);
    return mt_build_project(build, x, il, MT_SLOT_ATTN_OUT, build->d->embedding_length);
}

static struct mt_node *gemma4_experts(struct mt_build *build, struct mt_node *in, size_t il,
                                      unsigned traits)
{
    static const enum mt_slot dense[3] = {MT_SLOT_FFN_UP, MT_SLOT_FFN_GATE, MT_SLOT_FFN_DOWN};
    struct mt_graph *g = build->graph;
    const struct mt_model_layer *l = &build->d->layers[il];
    struct mt_node *beside = mt_build_norm(build, in, il, MT_SLOT_FFN_NORM, 0);
    beside = mt_build_dense_ffn(build, beside, il, dense, l->ff_length, 0);
    beside = mt_build_norm(build, beside, il, MT_SLOT_FFN_POST_NORM_1, 0);
    struct mt_node *x = mt_build_norm(build, in, il, MT_SLOT_FFN_PRE_NORM_2, 0);
    struct mt_node *logits = mt_op_map(g, mt_op_map(g, in, NULL), NULL);
    logits = mt_op_map(g, logits, mt_build_maybe(build, il, MT_SLOT_ROUTER_SCALE));
    logits = mt_build_project(build, logits, il, MT_SLOT_ROUTER, l->experts);
    x = mt_build_experts(build, x, logits, il, traits);
    x = mt_build_norm(build, x, il, MT_SLOT_FFN_POST_NORM_2, 0);
    return mt_op_map(g, beside, x);
}

static struct mt_node *gemma4_ffn(struct mt_build *build, struct mt_node *in, size_t il,
                                  unsigned traits)
{
    struct mt_node *x;
    build->graph->part = MT_PART_FFN;
    if (mt_build_has(build, il, MT_SLOT_ROUTER)) {
        x = gemma4_experts(build, in, il, traits);
    } else {
        x = mt_build_norm(build, in, il, MT_SLOT_FFN_NORM, 0);
        x = mt_build_ffn(build, x, il, traits);
    }
    x = mt_build_norm_unpinned(build, x, il, MT_SLOT_FFN_POST_NORM);
    return mt_op_map(build->graph, x, in);
}

static struct mt_node *gemma4_layer(struct mt_build *build, struct mt_node *in, size_t il,
                                    unsigned traits)
{
    struct mt_graph *g = build->graph;
    int early = il == build->n_layers - 1 && !(traits & MT_BUILD_ROWS_LATE);
    struct mt_node *x = mt_build_norm(build, in, il, MT_SLOT_ATTN_NORM, 0);
    x = gemma_attention(build, x, il);
    if (early) {
        x = mt_op_get_rows(g, x, build->output_rows);
        in = mt_op_get_rows(g, in, build->output_rows);
    }
    x = mt_build_norm(build, x, il, MT_SLOT_ATTN_POST_NORM, 0);
    x = gemma4_ffn(build, mt_op_map(g, x, in), il, traits);
    if (build->per_layer) {
        struct mt_node *own = slice(build, build->per_layer);
        if (early)
            own = mt_op_get_rows(g, own, build->output_rows);
        x = mt_op_map(g, x, gated_by_layer(build, x, il, own));
    }
    struct mt_node *scale = mt_build_maybe(build, il, MT_SLOT_OUT_SCALE);
    return scale ? mt_op_map(g, x, scale) : x;
}

void mt_build_gemma4(struct mt_build *build, unsigned traits)
{
    struct mt_node *rows = NULL;
    build->windows_rotate_plainly = 1;
    if (own_width(build) && build->newer & MT_NEWER_EMBEDDINGS) {
        rows = per_layer_rows(build);
        mt_graph_expand(build->graph, rows);
    }
    struct mt_node *x = mt_build_embedding(build, traits);
    if (own_width(build))
        per_layer_inputs(build, x, rows);
    for (size_t i = 0; i < build->n_layers; i++)
        x = gemma4_layer(build, x, i, traits);
    mt_build_output(build, x, traits);
}

static struct mt_node *magnitude(struct mt_build *build, struct mt_node *x)
{
    struct mt_graph *g = build->graph;
    return mt_op_map(g, mt_op_sum_rows(g, mt_op_map(g, x, NULL)), NULL);
}

/* Gives x the magnitude of another. */
static struct mt_node *as_loud(struct mt_build *build, struct mt_node *x, struct mt_node *target)
{
    struct mt_graph *g = build->graph;
    struct mt_node *own = magnitude(build, x);
    return mt_op_map(g, mt_op_map(g, x, target), own);
}

static struct mt_node *stacked(struct mt_build *build, struct mt_node *x)
{
    struct mt_graph *g = build->graph;
    uint64_t embedding = x->ne[0];
    uint64_t others = streams_of(build) - 1;
    struct mt_node *target = magnitude(build, x);
    struct mt_node *copies = mt_op_repeat(g, x, embedding, build->tokens, others, 1);
    struct mt_node *weight =
        mt_build_weight(build, build->n_layers, MT_SLOT_ALTUP_PROJ, embedding, embedding, others);
    struct mt_node *added = as_loud(build, mt_op_mul_mat(g, weight, copies), target);
    return mt_op_concat(g, x, added, 2);
}

static struct mt_node *modalities(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    x = mt_op_map(g, mt_build_norm(build, x, il, MT_SLOT_ALTUP_ROUTER_NORM, 0), NULL);
    return mt_op_map(g, mt_build_project(build, x, il, MT_SLOT_ALTUP_ROUTER, streams_of(build)),
                     NULL);
}

static struct mt_node *predicted(struct mt_build *build, struct mt_node *in, size_t il)
{
    struct mt_graph *g = build->graph;
    uint64_t n = streams_of(build);
    struct mt_node *coefficients = modalities(build, slice(build, in), il);
    coefficients = mt_build_project(build, coefficients, il, MT_SLOT_ALTUP_PREDICT, n * n);
    coefficients = mt_op_reshape(g, coefficients, n, n, build->tokens, 1);
    struct mt_node *turned = mt_op_like(g, mt_op_permute(g, in, 1, 2, 0, 3));
    struct mt_node *x = mt_op_mul_mat(g, turned, coefficients);
    x = mt_op_like(g, mt_op_permute(g, x, 0, 2, 1, 3));
    return mt_op_map(g, x, in);
}

static struct mt_node *corrected(struct mt_build *build, struct mt_node *predictions,
                                 struct mt_node *activated, size_t il)
{
    struct mt_graph *g = build->graph;
    uint64_t n = streams_of(build);
    struct mt_node *how = modalities(build, activated, il);
    struct mt_node *news = mt_op_map(g, activated, slice(build, predictions));
    struct mt_node *coefficients = mt_build_project(build, how, il, MT_SLOT_ALTUP_CORRECT, n);
    coefficients = mt_op_transpose(g, mt_op_map(g, coefficients, NULL));
    coefficients = mt_op_cont(g, coefficients, 1, build->tokens, n);
    news = mt_op_repeat(g, news, activated->ne[0], build->tokens, n, 1);
    return mt_op_map(g, mt_op_map(g, news, coefficients), predictions);
}

static struct mt_node *laurel(struct mt_build *build, struct mt_node *in, size_t il)
{
    struct mt_node *left = mt_build_maybe(build, il, MT_SLOT_LAUREL_L);
    uint64_t rank = left ? left->ne[1] : 64;
    struct mt_node *x = mt_build_project(build, in, il, MT_SLOT_LAUREL_L, rank);
    x = mt_build_project(build, x, il, MT_SLOT_LAUREL_R, in->ne[0]);
    x = mt_build_norm(build, x, il, MT_SLOT_LAUREL_POST_NORM, 0);
    return mt_op_map(build->graph, x, in);
}

/* Keeps what lies some deviations above the mean. */
static struct mt_node *largest_only(struct mt_build *build, struct mt_node *x)
{
    struct mt_graph *g = build->graph;
    struct mt_node *mean = mt_op_sum_rows(g, x);
    struct mt_node *square = mt_op_map(g, mt_op_map(g, x, mean), NULL);
    struct mt_node *deviation = mt_op_map(g, mt_op_sum_rows(g, square), NULL);
    deviation = mt_op_map(g, deviation, NULL);
    struct mt_node *cutoff = mt_op_map(g, mean, mt_op_map(g, deviation, NULL));
    return mt_op_map(g, mt_op_map(g, x, cutoff), NULL);
}

static struct mt_node *gemma3n_ffn(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    uint64_t width = build->d->layers[il].ff_length;
    uint64_t embedding = x->ne[0];
    g->part = MT_PART_FFN;
    struct mt_node *up = mt_build_project(build, x, il, MT_SLOT_FFN_UP, width);
    struct mt_node *gate = mt_build_project(build, x, il, MT_SLOT_FFN_GATE, width);
    if (il < SPARSE_LAYERS)
        gate = largest_only(build, gate);
    x = mt_op_map(g, up, mt_op_map(g, gate, NULL));
    x = mt_build_project(build, x, il, MT_SLOT_FFN_DOWN, embedding);
    return mt_build_norm_unpinned(build, x, il, MT_SLOT_FFN_POST_NORM);
}

static struct mt_node *gemma3n_attention(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_layer *l = &build->d->layers[il];
    if (l->cache_layer != il)
        return gemma_attention(build, x, il);
    g->part = MT_PART_ATTENTION;
    struct mt_build_qkv qkv = mt_build_qkv(build, x, il);
    qkv.q = mt_build_rope(build, mt_build_norm(build, qkv.q, il, MT_SLOT_ATTN_Q_NORM, 0), il);
    qkv.k = mt_build_rope(build, mt_build_norm(build, qkv.k, il, MT_SLOT_ATTN_K_NORM, 0), il);
    qkv.v = mt_op_map(g, qkv.v, NULL);
    x = mt_build_attend(build, &qkv, il, NULL);
    return mt_build_project(build, x, il, MT_SLOT_ATTN_OUT, build->d->embedding_length);
}

/* Adds the layer's own input to all streams but the first. */
static struct mt_node *with_layer_input(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    uint64_t embedding = x->ne[0];
    struct mt_node *first = slice(build, x);
    struct mt_node *scale =
        mt_build_weight(build, il, MT_SLOT_ALTUP_CORRECT_SCALE, embedding, 1, 1);
    first = gated_by_layer(build, mt_op_map(g, first, scale), il, slice(build, build->per_layer));
    struct mt_node *rest =
        mt_op_view(g, x, (uint64_t[4]){embedding, x->ne[1], x->ne[2] - 1, 1}, x->nb);
    return mt_op_concat(g, slice(build, x), mt_op_map(g, rest, first), 2);
}

static struct mt_node *gemma3n_layer(struct mt_build *build, struct mt_node *in, size_t il)
{
    struct mt_graph *g = build->graph;
    struct mt_node *predictions = predicted(build, in, il);
    struct mt_node *active = slice(build, predictions);
    struct mt_node *x = mt_build_norm(build, active, il, MT_SLOT_ATTN_NORM, 0);
    struct mt_node *low_rank = laurel(build, x, il);
    x = gemma3n_attention(build, x, il);
    x = mt_build_norm(build, x, il, MT_SLOT_ATTN_POST_NORM, 0);
    x = mt_op_map(g, x, active);
    struct mt_node *both = mt_op_map(g, mt_op_map(g, x, low_rank), NULL);
    x = mt_build_norm(build, both, il, MT_SLOT_FFN_NORM, 0);
    x = mt_op_map(g, gemma3n_ffn(build, x, il), both);
    return with_layer_input(build, corrected(build, predictions, x, il), il);
}

static struct mt_node *merged(struct mt_build *build, struct mt_node *x)
{
    struct mt_graph *g = build->graph;
    uint64_t embedding = x->ne[0];
    uint64_t others = streams_of(build) - 1;
    struct mt_node *target = magnitude(build, slice(build, x));
    struct mt_node *rest = mt_op_view(g, x, (uint64_t[4]){embedding, x->ne[1], others, 1}, x->nb);
    struct mt_node *weight = mt_build_weight(build, build->n_layers, MT_SLOT_ALTUP_UNEMBED,
                                             embedding, embedding, others);
    rest = as_loud(build, mt_op_mul_mat(g, weight, rest), target);
    x = slice(build, x);
    for (uint64_t i = 0; i < others; i++)
        x = mt_op_map(g, x, slice(build, rest));
    return mt_op_map(g, x, NULL);
}

void mt_build_gemma3n(struct mt_build *build, unsigned traits)
{
    struct mt_node *x = mt_build_embedding(build, traits);
    per_layer_inputs(build, x, NULL);
    x = stacked(build, x);
    for (size_t i = 0; i < build->n_layers; i++)
        x = gemma3n_layer(build, x, i);
    x = mt_op_get_rows(build->graph, merged(build, x), build->output_rows);
    mt_build_output(build, x, traits);
}
