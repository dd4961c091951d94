/* SPDX-License-Identifier: MIT */
/* Attention parts of llama.cpp's graphs: ordinary, gated and latent, with their caches. */
#include <string.h>

#include "build.h"
#include "engine/flash_kernel.h"
#include "predict/llama/internal.h"

static struct mt_build_cache *cache_inputs_of(struct mt_build *build, size_t il)
{
    return mt_build_is_windowed(build, il) ? &build->windowed : &build->global;
}

static struct mt_build_layer *cache_of(struct mt_build *build, size_t il)
{
    uint64_t owner = build->d->layers[il].cache_layer;
    return &build->layers[owner < build->n_layers ? owner : il];
}

/* Multiplies rows by a small matrix, heads laid end to end. */
static struct mt_node *rotated(struct mt_build *build, struct mt_node *x, struct mt_node *matrix)
{
    struct mt_graph *g = build->graph;
    if (!matrix)
        return x;
    uint64_t n = matrix->ne[0];
    uint64_t rows = mt_node_elements(x) / n;
    struct mt_node *flat = mt_node_is_contiguous(x) ? mt_op_reshape(g, x, n, rows, 1, 1)
                                                    : mt_op_cont(g, x, n, rows, 1);
    flat = mt_op_mul_mat(g, matrix, flat);
    return mt_op_reshape(g, flat, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
}

/* The current keys or values as rows of a cache. */
static struct mt_node *as_rows(struct mt_build *build, struct mt_node *x)
{
    uint64_t width = x->ne[0] * x->ne[1];
    const uint64_t ne[4] = {width, x->ne[2], 1, 1};
    const uint64_t nb[4] = {x->nb[0], x->nb[2], x->nb[2] * x->ne[2], x->nb[2] * x->ne[2]};
    return mt_op_view(build->graph, x, ne, nb);
}

static struct mt_node *all_streams(struct mt_build *build, struct mt_node *cache)
{
    if (build->streams < 2)
        return cache;
    return mt_op_reshape(build->graph, cache, cache->ne[0], cache->ne[1] * cache->ne[2], 1, 1);
}

void mt_build_store_rows(struct mt_build *build, struct mt_node *x, struct mt_node *cache,
                         struct mt_node *rows)
{
    struct mt_node *from = as_rows(build, x);
    mt_graph_expand(build->graph,
                    mt_op_set_rows(build->graph, all_streams(build, cache), from, rows));
}

/* Without flash attention values are kept transposed, each element a row of its own. */
static void store_transposed(struct mt_build *build, struct mt_node *v, struct mt_node *cache,
                             const struct mt_build_cache *inputs)
{
    struct mt_graph *g = build->graph;
    uint64_t width = v->ne[0] * v->ne[1];
    uint64_t n = v->ne[2];
    if (mt_graph_row_bytes(v->type, width) == v->nb[2])
        v = mt_op_reshape(g, v, width, n, 1, 1);
    else
        v = mt_op_cont(g, v, width, n, 1);
    if (width < cache->ne[0])
        v = mt_op_cont(g, v, cache->ne[0], n, 1);
    struct mt_node *to = mt_op_reshape(g, cache, 1, mt_node_elements(cache), 1, 1);
    v = mt_op_reshape(g, v, 1, mt_node_elements(v), 1, 1);
    mt_graph_expand(g, mt_op_set_rows(g, to, v, inputs->v_rows));
}

static void store_values(struct mt_build *build, struct mt_node *v, struct mt_build_layer *cache,
                         const struct mt_build_cache *inputs)
{
    if (!build->plan->flash_attention) {
        store_transposed(build, v, cache->v, inputs);
        return;
    }
    mt_build_store_rows(build, v, cache->v, inputs->v_rows);
}

static struct mt_node *cached_keys(struct mt_build *build, size_t il)
{
    const struct mt_model_layer *layer = &build->d->layers[il];
    struct mt_node *k = cache_of(build, il)->k;
    const uint64_t ne[4] = {layer->key_size, layer->kv_heads, k->ne[1], build->streams};
    const uint64_t nb[4] = {k->nb[0], mt_graph_row_bytes(k->type, layer->key_size), k->nb[1],
                            k->nb[2]};
    return mt_op_view(build->graph, k, ne, nb);
}

static struct mt_node *cached_values(struct mt_build *build, size_t il)
{
    const struct mt_model_layer *layer = &build->d->layers[il];
    struct mt_node *v = cache_of(build, il)->v;
    if (build->plan->flash_attention) {
        const uint64_t ne[4] = {layer->value_size, layer->kv_heads, v->ne[1], build->streams};
        const uint64_t nb[4] = {v->nb[0], mt_graph_row_bytes(v->type, layer->value_size), v->nb[1],
                                v->nb[2]};
        return mt_op_view(build->graph, v, ne, nb);
    }
    uint64_t row = mt_graph_row_bytes(v->type, v->ne[1]);
    const uint64_t ne[4] = {v->ne[1], layer->kv_heads, layer->value_size, build->streams};
    const uint64_t nb[4] = {v->nb[0], row * layer->value_size, row, v->nb[2]};
    return mt_op_view(build->graph, v, ne, nb);
}

/* Latent attention reads its values out of the keys. */
static struct mt_node *values_in_keys(struct mt_build *build, struct mt_node *k, uint64_t size)
{
    return mt_op_view(build->graph, k, (uint64_t[4]){size, k->ne[1], k->ne[2], k->ne[3]}, k->nb);
}

static struct mt_node *mask_of(struct mt_build *build, size_t il)
{
    return build->mask_of_layer ? build->mask_of_layer : cache_inputs_of(build, il)->mask;
}

static struct mt_node *flash(struct mt_build *build, struct mt_node *q, struct mt_node *k,
                             struct mt_node *v, size_t il, struct mt_node *decompress)
{
    struct mt_graph *g = build->graph;
    struct mt_node *x = mt_op_flash_attention(g, q, k, v, mask_of(build, il),
                                              mt_build_maybe(build, il, MT_SLOT_ATTN_SINKS));
    if (decompress) {
        x = mt_op_mul_mat(g, decompress, mt_op_permute(g, x, 0, 2, 1, 3));
        x = mt_op_like(g, mt_op_permute(g, x, 0, 2, 1, 3));
    }
    return mt_op_reshape(g, x, x->ne[0] * x->ne[1], x->ne[2] * x->ne[3], 1, 1);
}

static struct mt_node *product(struct mt_build *build, struct mt_node *q, struct mt_node *k,
                               struct mt_node *v, size_t il, struct mt_node *decompress)
{
    struct mt_graph *g = build->graph;
    int transposed = v->nb[1] < v->nb[2];
    struct mt_node *kq = mt_op_mul_mat(g, k, q);
    kq = mt_op_soft_max(g, kq, mask_of(build, il), mt_build_maybe(build, il, MT_SLOT_ATTN_SINKS));
    if (!transposed)
        v = mt_op_like(g, mt_op_transpose(g, v));
    struct mt_node *x = mt_op_mul_mat(g, v, kq);
    if (decompress)
        x = mt_op_mul_mat(g, decompress, x);
    x = mt_op_permute(g, x, 0, 2, 1, 3);
    x = mt_op_cont(g, x, x->ne[0] * x->ne[1], x->ne[2] * x->ne[3], 1);
    if (build->pins_attention)
        x->backend = (int8_t)build->host;
    return x;
}

static struct mt_node *heads_first(struct mt_build *build, struct mt_node *x)
{
    return mt_op_permute(build->graph, x, 0, 2, 1, 3);
}

/* Flash attention reads no numbers of 32 bits. */
struct mt_node *mt_build_as_halves(struct mt_build *build, struct mt_node *x)
{
    if (x->type != MT_TYPE_F32)
        return x;
    struct mt_node *y = mt_node_new(build->graph, MT_OP_NEW, MT_TYPE_F16, x->ne);
    y->sources[0] = x;
    return y;
}

static struct mt_node *attend_cached(struct mt_build *build, struct mt_node *q, struct mt_node *k,
                                     struct mt_node *v, size_t il, struct mt_node *decompress)
{
    struct mt_graph *g = build->graph;
    uint64_t streams = k->ne[3];
    uint64_t n = q->ne[2] / streams;
    const uint64_t ne[4] = {q->ne[0], q->ne[1], n, streams};
    const uint64_t nb[4] = {q->nb[0], q->nb[1], q->nb[2], q->nb[2] * n};
    int transposed = v->nb[1] > v->nb[2];
    q = heads_first(build, mt_op_view(g, q, ne, nb));
    k = heads_first(build, k);
    v = heads_first(build, v);
    struct mt_node *x;
    if (build->plan->flash_attention) {
        if (transposed)
            v = mt_op_transpose(g, v);
        k = mt_build_as_halves(build, k);
        v = mt_build_as_halves(build, v);
        x = flash(build, q, k, v, il, decompress);
    } else {
        x = product(build, q, k, v, il, decompress);
    }
    mt_graph_expand(g, x);
    return x;
}

/* Keys or values of a batch, up to a whole step. */
static struct mt_node *padded(struct mt_build *build, struct mt_node *x)
{
    const uint64_t ne[4] = {x->ne[0], x->ne[1], mt_build_keys_of_batch(build), 1};
    return mt_op_make(build->graph, ne, x, NULL, NULL);
}

uint64_t mt_build_keys_of_batch(const struct mt_build *build)
{
    int pads = build->newer & MT_NEWER_PADDED && build->plan->flash_attention;
    return pads ? mt_llama_padded(build->tokens, MT_FLASH_STRIDE_OF_KEYS) : build->tokens;
}

struct mt_node *mt_build_attend_batch(struct mt_build *build, const struct mt_build_qkv *qkv,
                                      size_t il, struct mt_node *mask)
{
    mt_graph_expand(build->graph, qkv->q);
    mt_graph_expand(build->graph, qkv->k);
    mt_graph_expand(build->graph, qkv->v);
    build->mask_of_layer = mask;
    int pads = build->newer & MT_NEWER_PADDED && build->plan->flash_attention;
    struct mt_node *k = pads ? padded(build, qkv->k) : qkv->k;
    struct mt_node *v = pads ? padded(build, qkv->v) : qkv->v;
    return attend_cached(build, qkv->q, k, v, il, NULL);
}

struct mt_node *mt_build_attend(struct mt_build *build, const struct mt_build_qkv *qkv, size_t il,
                                struct mt_node *decompress)
{
    struct mt_graph *g = build->graph;
    struct mt_build_cache *inputs = cache_inputs_of(build, il);
    struct mt_build_layer *cache = cache_of(build, il);
    int latent = build->d->layers[il].attention == MT_ATTENTION_LATENT;
    int windows = build->windowed.k_rows != NULL;
    struct mt_node *q = rotated(build, qkv->q, inputs->k_rotation);
    struct mt_node *k = qkv->k ? rotated(build, qkv->k, inputs->k_rotation) : NULL;
    struct mt_node *v = qkv->v ? rotated(build, qkv->v, inputs->v_rotation) : NULL;
    mt_graph_expand(g, q);
    if (k && windows)
        mt_graph_expand(g, k);
    if (v)
        mt_graph_expand(g, v);
    if (k)
        mt_graph_expand(g, k);
    if (k)
        mt_build_store_rows(build, k, cache->k, inputs->k_rows);
    if (v && !latent)
        store_values(build, v, cache, inputs);
    struct mt_node *keys = cached_keys(build, il);
    struct mt_node *values =
        latent ? values_in_keys(build, keys, v->ne[0]) : cached_values(build, il);
    struct mt_node *x = attend_cached(build, q, keys, values, il, decompress);
    return rotated(build, x, inputs->v_rotation);
}

static struct mt_build_qkv fused_qkv(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_layer *l = &build->d->layers[il];
    uint64_t width = (l->heads + l->kv_heads) * l->key_size + l->kv_heads * l->value_size;
    struct mt_node *all = mt_build_project(build, x, il, MT_SLOT_ATTN_QKV, width);
    all = mt_build_biased(build, all, il, MT_SLOT_ATTN_QKV_B);
    uint64_t row = mt_graph_row_bytes(MT_TYPE_F32, l->key_size);
    struct mt_build_qkv qkv;
    qkv.q = mt_op_heads(g, all, l->key_size, l->heads, row);
    qkv.k = mt_op_heads(g, all, l->key_size, l->kv_heads, row);
    qkv.v = mt_op_heads(g, all, l->value_size, l->kv_heads,
                        mt_graph_row_bytes(MT_TYPE_F32, l->value_size));
    return qkv;
}

struct mt_build_qkv mt_build_qkv(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_layer *l = &build->d->layers[il];
    struct mt_build_qkv qkv;
    if (mt_build_has(build, il, MT_SLOT_ATTN_QKV))
        return fused_qkv(build, x, il);
    uint64_t n = x->ne[1];
    qkv.q = mt_build_project(build, x, il, MT_SLOT_ATTN_Q, l->heads * l->key_size);
    qkv.q = mt_build_biased(build, qkv.q, il, MT_SLOT_ATTN_Q_B);
    qkv.k = mt_build_project(build, x, il, MT_SLOT_ATTN_K, l->kv_heads * l->key_size);
    qkv.k = mt_build_biased(build, qkv.k, il, MT_SLOT_ATTN_K_BIAS);
    qkv.v = mt_build_project(build, x, il, MT_SLOT_ATTN_V, l->kv_heads * l->value_size);
    qkv.v = mt_build_biased(build, qkv.v, il, MT_SLOT_ATTN_V_BIAS);
    qkv.q = mt_op_reshape(g, qkv.q, l->key_size, l->heads, n, 1);
    qkv.k = mt_op_reshape(g, qkv.k, l->key_size, l->kv_heads, n, 1);
    qkv.v = mt_op_reshape(g, qkv.v, l->value_size, l->kv_heads, n, 1);
    return qkv;
}

/* Frequencies of the rotation that the file brings: one tensor on each backend that has layers. */
static struct mt_node *factors_of(struct mt_build *build, size_t il)
{
    static const enum mt_slot slots[] = {MT_SLOT_ROPE_LONG, MT_SLOT_ROPE_FREQS};
    struct mt_node **factors = &build->factors[mt_build_backend(build, il)];
    for (size_t i = 0; !*factors && i < sizeof slots / sizeof *slots; i++) {
        struct mt_build_weight *weight = &build->layers[build->n_layers].weights[slots[i]];
        if (!weight->present)
            continue;
        *factors =
            mt_op_external(build->graph, MT_TYPE_F32, weight->ne, mt_build_backend(build, il));
        (*factors)->flags |= MT_NODE_WEIGHT;
    }
    return *factors;
}

struct mt_node *mt_build_rope(struct mt_build *build, struct mt_node *x, size_t il)
{
    int plain =
        build->windowed.k_rows && mt_build_is_windowed(build, il) && build->windows_rotate_plainly;
    return mt_op_rope(build->graph, x, build->positions, plain ? NULL : factors_of(build, il));
}

static struct mt_node *normed(struct mt_build *build, struct mt_node *x, size_t il,
                              enum mt_slot slot, unsigned traits)
{
    if (!mt_build_expects(build, il, slot))
        return x;
    return mt_build_norm(build, x, il, slot, traits & MT_BUILD_LAYER_NORM);
}

/* Whether queries and keys are normed with all heads together. */
static int norms_all_heads(const struct mt_build *build, size_t il)
{
    const struct mt_build_weight *norm = &build->layers[il].weights[MT_SLOT_ATTN_Q_NORM];
    const struct mt_model_layer *l = &build->d->layers[il];
    return norm->present && l->heads > 1 && norm->ne[0] == l->heads * l->key_size;
}

static struct mt_build_qkv normed_qkv(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_layer *l = &build->d->layers[il];
    uint64_t n = x->ne[1];
    struct mt_build_qkv qkv;
    qkv.q = mt_build_project(build, x, il, MT_SLOT_ATTN_Q, l->heads * l->key_size);
    qkv.q = mt_build_biased(build, qkv.q, il, MT_SLOT_ATTN_Q_B);
    qkv.k = mt_build_project(build, x, il, MT_SLOT_ATTN_K, l->kv_heads * l->key_size);
    qkv.k = mt_build_biased(build, qkv.k, il, MT_SLOT_ATTN_K_BIAS);
    qkv.v = mt_build_project(build, x, il, MT_SLOT_ATTN_V, l->kv_heads * l->value_size);
    qkv.v = mt_build_biased(build, qkv.v, il, MT_SLOT_ATTN_V_BIAS);
    qkv.q = mt_build_norm(build, qkv.q, il, MT_SLOT_ATTN_Q_NORM, 0);
    qkv.k = mt_build_norm(build, qkv.k, il, MT_SLOT_ATTN_K_NORM, 0);
    qkv.q = mt_op_reshape(g, qkv.q, l->key_size, l->heads, n, 1);
    qkv.k = mt_op_reshape(g, qkv.k, l->key_size, l->kv_heads, n, 1);
    qkv.v = mt_op_reshape(g, qkv.v, l->value_size, l->kv_heads, n, 1);
    return qkv;
}

static int rotates(const struct mt_build *build, size_t il, unsigned traits)
{
    if (traits & MT_BUILD_NO_ROPE || (traits & MT_BUILD_ROPE_THREE_OF_FOUR && (il + 1) % 4 == 0))
        return 0;
    if (!build->windowed.k_rows && build->arch == MT_ARCH_EXAONE4)
        return 1;
    return !(traits & MT_BUILD_ROPE_WINDOWED) || mt_build_is_windowed(build, il);
}

/* Queries and keys, normed and rotated in the order of the family. */
static void place_heads(struct mt_build *build, struct mt_build_qkv *qkv, size_t il,
                        unsigned traits)
{
    int rope = rotates(build, il, traits);
    int late = !!(traits & MT_BUILD_NORMS_QK_AFTER);
    int early = !late && !norms_all_heads(build, il);
    if (early)
        qkv->q = normed(build, qkv->q, il, MT_SLOT_ATTN_Q_NORM, traits);
    if (rope)
        qkv->q = mt_build_rope(build, qkv->q, il);
    if (early)
        qkv->k = normed(build, qkv->k, il, MT_SLOT_ATTN_K_NORM, traits);
    if (rope)
        qkv->k = mt_build_rope(build, qkv->k, il);
    if (late && mt_build_expects(build, il, MT_SLOT_ATTN_Q_NORM)) {
        qkv->q = normed(build, qkv->q, il, MT_SLOT_ATTN_Q_NORM, traits);
        qkv->k = normed(build, qkv->k, il, MT_SLOT_ATTN_K_NORM, traits);
    } else if (late && rope) {
        qkv->q = mt_op_map(build->graph, qkv->q, NULL);
        qkv->k = mt_op_map(build->graph, qkv->k, NULL);
    }
}

struct mt_node *mt_build_attention(struct mt_build *build, struct mt_node *x, size_t il,
                                   unsigned traits)
{
    struct mt_graph *g = build->graph;
    uint64_t embedding = build->d->embedding_length;
    struct mt_build_qkv qkv =
        norms_all_heads(build, il) ? normed_qkv(build, x, il) : mt_build_qkv(build, x, il);
    place_heads(build, &qkv, il, traits);
    if (build->attention_scale && (!(traits & MT_BUILD_TEMPERATURE) || !rotates(build, il, traits)))
        qkv.q = mt_op_map(g, qkv.q, build->attention_scale);
    if (traits & MT_BUILD_SCALES_QUERIES)
        qkv.q = mt_op_map(g, qkv.q, NULL);
    x = mt_build_attend(build, &qkv, il, NULL);
    x = mt_build_project(build, x, il, MT_SLOT_ATTN_OUT, embedding);
    return mt_build_biased(build, x, il, MT_SLOT_ATTN_OUT_B);
}

/* Queries come with a gate for the output of their head beside them. */
struct mt_node *mt_build_gated_attention(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_layer *l = &build->d->layers[il];
    uint64_t embedding = x->ne[0];
    uint64_t n = x->ne[1];
    uint64_t size = l->key_size;
    uint64_t row = mt_graph_row_bytes(MT_TYPE_F32, 2 * size);
    struct mt_build_qkv qkv;
    struct mt_node *both = mt_build_project(build, x, il, MT_SLOT_ATTN_Q, 2 * size * l->heads);
    qkv.k = mt_build_project(build, x, il, MT_SLOT_ATTN_K, size * l->kv_heads);
    qkv.v = mt_build_project(build, x, il, MT_SLOT_ATTN_V, l->value_size * l->kv_heads);
    qkv.q = normed(build, mt_op_heads(g, both, size, l->heads, row), il, MT_SLOT_ATTN_Q_NORM, 0);
    qkv.k = mt_op_reshape(g, qkv.k, size, l->kv_heads, n, 1);
    qkv.k = normed(build, qkv.k, il, MT_SLOT_ATTN_K_NORM, 0);
    struct mt_node *gate = mt_op_heads(g, both, size, l->heads, row);
    qkv.v = mt_op_reshape(g, qkv.v, l->value_size, l->kv_heads, n, 1);
    qkv.q = mt_build_rope(build, qkv.q, il);
    qkv.k = mt_build_rope(build, qkv.k, il);
    x = mt_build_attend(build, &qkv, il, NULL);
    gate = mt_op_cont(g, gate, size * l->heads, n, 1);
    if (!(build->newer & MT_NEWER_GATE) && build->d->position_streams == 1)
        gate = mt_op_reshape(g, gate, size * l->heads, n, 1, 1);
    x = mt_op_map(g, x, mt_op_map(g, gate, NULL));
    return mt_build_project(build, x, il, MT_SLOT_ATTN_OUT, embedding);
}

static struct mt_node *latent_queries(struct mt_build *build, struct mt_node *x, size_t il,
                                      uint64_t size)
{
    const struct mt_model_description *d = build->d;
    uint64_t width = size * d->layers[il].heads;
    if (!d->q_lora_rank)
        return mt_build_project(build, x, il, MT_SLOT_ATTN_Q, width);
    struct mt_node *in = x;
    x = mt_build_project(build, x, il, MT_SLOT_ATTN_Q_A, d->q_lora_rank);
    x = mt_build_norm(build, x, il, MT_SLOT_ATTN_Q_A_NORM, 0);
    if (mt_build_is_sparse(build))
        mt_build_choose_tokens(build, in, x, il);
    return mt_build_project(build, x, il, MT_SLOT_ATTN_Q_LORA_B, width);
}

/* What both forms of latent attention begin with; nothing of it is rotated or normed yet. */
struct latent {
    struct mt_node *q;          /* of all heads, both parts */
    struct mt_node *compressed; /* keys and values */
    struct mt_node *k_rope;     /* the part of the keys to be rotated, one for all heads */
};

static struct latent project_latent(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    uint64_t size = d->qk_nope_head_size + d->qk_rope_head_size;
    struct latent made;
    made.q = latent_queries(build, x, il, size);
    made.q = mt_op_reshape(g, made.q, size, d->layers[il].heads, x->ne[1], 1);
    struct mt_node *both =
        mt_build_project(build, x, il, MT_SLOT_ATTN_KV_A, d->kv_lora_rank + d->qk_rope_head_size);
    made.compressed = mt_op_columns(g, both, d->kv_lora_rank);
    made.k_rope = mt_op_heads(g, both, d->qk_rope_head_size, 1, both->nb[1]);
    return made;
}

struct mt_node *mt_build_latent_attention(struct mt_build *build, struct mt_node *x, size_t il,
                                          unsigned traits)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    uint64_t heads = d->layers[il].heads;
    uint64_t rank = d->kv_lora_rank;
    uint64_t rope = d->qk_rope_head_size;
    uint64_t nope = d->qk_nope_head_size;
    struct latent made = project_latent(build, x, il);
    struct mt_node *q = made.q, *compressed = made.compressed, *k_rope = made.k_rope;
    int rotates_part = !(traits & MT_BUILD_NO_ROPE);
    if (rotates_part)
        k_rope = mt_build_rope(build, k_rope, il);
    compressed = mt_build_norm(build, compressed, il, MT_SLOT_ATTN_KV_A_NORM, 0);
    struct mt_node *q_nope = mt_op_columns(g, q, nope);
    struct mt_node *q_rope = mt_op_columns(g, q, rope);
    if (rotates_part)
        q_rope = mt_build_rope(build, q_rope, il);
    struct mt_node *up = mt_build_weight(build, il, MT_SLOT_ATTN_K_LORA_B, nope, rank, heads);
    struct mt_node *absorbed = mt_op_mul_mat(g, up, mt_op_permute(g, q_nope, 0, 2, 1, 3));
    absorbed = mt_op_permute(g, absorbed, 0, 2, 1, 3);
    struct mt_build_qkv qkv;
    qkv.q = mt_op_concat(g, absorbed, q_rope, 0);
    compressed = mt_op_reshape(g, compressed, rank, 1, compressed->ne[1], 1);
    qkv.k = mt_op_concat(g, compressed, k_rope, 0);
    qkv.v = compressed;
    if (build->attention_scale)
        qkv.q = mt_op_map(g, qkv.q, build->attention_scale);
    struct mt_node *down =
        mt_build_weight(build, il, MT_SLOT_ATTN_V_LORA_B, rank, d->value_head_size, heads);
    x = mt_build_attend(build, &qkv, il, down);
    return mt_build_project(build, x, il, MT_SLOT_ATTN_OUT, d->embedding_length);
}

/* If a file holds the matrix of both (attn_kv_b), keys and values of all heads are made and cached;
 * the rotated part of the keys, one for all heads, is repeated for each in older builds. */
struct mt_node *mt_build_latent_in_heads(struct mt_build *build, struct mt_node *x, size_t il,
                                         unsigned traits)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    uint64_t heads = d->layers[il].heads;
    uint64_t rope = d->qk_rope_head_size;
    uint64_t nope = d->qk_nope_head_size;
    uint64_t value = d->value_head_size;
    uint64_t n = x->ne[1];
    struct latent made = project_latent(build, x, il);
    struct mt_node *q = made.q, *compressed = made.compressed, *k_rope = made.k_rope;
    int rotates_part = !(traits & MT_BUILD_NO_ROPE);
    struct mt_node *q_rope = mt_op_columns(g, q, rope);
    if (rotates_part) {
        q_rope = mt_build_rope(build, q_rope, il);
        k_rope = mt_build_rope(build, k_rope, il);
    }
    compressed = mt_build_norm(build, compressed, il, MT_SLOT_ATTN_KV_A_NORM, 0);
    struct mt_node *kv =
        mt_build_project(build, compressed, il, MT_SLOT_ATTN_KV_LORA_B, heads * (nope + value));
    uint64_t row = mt_graph_row_bytes(MT_TYPE_F32, nope + value);
    struct mt_node *k_nope = mt_op_heads(g, kv, nope, heads, row);
    struct mt_build_qkv qkv;
    qkv.v = mt_op_cont(g, mt_op_heads(g, kv, value, heads, row), value, heads, n);
    qkv.q = mt_op_concat(g, mt_op_columns(g, q, nope), q_rope, 0);
    if (!(build->newer & MT_NEWER_STATES))
        k_rope = mt_op_repeat(g, k_rope, rope, heads, n, 1);
    qkv.k = mt_op_concat(g, k_nope, k_rope, 0);
    x = mt_build_attend(build, &qkv, il, NULL);
    return mt_build_project(build, x, il, MT_SLOT_ATTN_OUT, d->embedding_length);
}
