/* SPDX-License-Identifier: MIT */
/* Attention parts of llama.cpp's graphs: ordinary, gated and latent, with their caches. */
#include <string.h>

#include "engine/flash_kernel.h"
#include "predict/llama_net.h"

static struct mt_net_cache *cache_inputs_of(struct mt_net *net, size_t il)
{
    return mt_net_is_windowed(net, il) ? &net->windowed : &net->global;
}

static struct mt_net_layer *cache_of(struct mt_net *net, size_t il)
{
    uint64_t owner = net->d->layers[il].cache_layer;
    return &net->layers[owner < net->n_layers ? owner : il];
}

/* Multiplies rows by a small matrix, heads laid end to end. */
static struct mt_node *rotated(struct mt_net *net, struct mt_node *x, struct mt_node *matrix)
{
    struct mt_graph *g = net->graph;
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
static struct mt_node *as_rows(struct mt_net *net, struct mt_node *x)
{
    uint64_t width = x->ne[0] * x->ne[1];
    const uint64_t ne[4] = {width, x->ne[2], 1, 1};
    const uint64_t nb[4] = {x->nb[0], x->nb[2], x->nb[2] * x->ne[2], x->nb[2] * x->ne[2]};
    return mt_op_view(net->graph, x, ne, nb);
}

static struct mt_node *all_streams(struct mt_net *net, struct mt_node *cache)
{
    if (net->streams < 2)
        return cache;
    return mt_op_reshape(net->graph, cache, cache->ne[0], cache->ne[1] * cache->ne[2], 1, 1);
}

void mt_net_store_rows(struct mt_net *net, struct mt_node *x, struct mt_node *cache,
                       struct mt_node *rows)
{
    struct mt_node *from = as_rows(net, x);
    mt_graph_expand(net->graph, mt_op_set_rows(net->graph, all_streams(net, cache), from, rows));
}

/* Without flash attention values are kept transposed, each element a row of its own. */
static void store_transposed(struct mt_net *net, struct mt_node *v, struct mt_node *cache,
                             const struct mt_net_cache *inputs)
{
    struct mt_graph *g = net->graph;
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

static void store_values(struct mt_net *net, struct mt_node *v, struct mt_net_layer *cache,
                         const struct mt_net_cache *inputs)
{
    if (!net->plan->flash_attention) {
        store_transposed(net, v, cache->v, inputs);
        return;
    }
    mt_net_store_rows(net, v, cache->v, inputs->v_rows);
}

static struct mt_node *cached_keys(struct mt_net *net, size_t il)
{
    const struct mt_model_layer *layer = &net->d->layers[il];
    struct mt_node *k = cache_of(net, il)->k;
    const uint64_t ne[4] = {layer->key_size, layer->kv_heads, k->ne[1], net->streams};
    const uint64_t nb[4] = {k->nb[0], mt_graph_row_bytes(k->type, layer->key_size), k->nb[1],
                            k->nb[2]};
    return mt_op_view(net->graph, k, ne, nb);
}

static struct mt_node *cached_values(struct mt_net *net, size_t il)
{
    const struct mt_model_layer *layer = &net->d->layers[il];
    struct mt_node *v = cache_of(net, il)->v;
    if (net->plan->flash_attention) {
        const uint64_t ne[4] = {layer->value_size, layer->kv_heads, v->ne[1], net->streams};
        const uint64_t nb[4] = {v->nb[0], mt_graph_row_bytes(v->type, layer->value_size), v->nb[1],
                                v->nb[2]};
        return mt_op_view(net->graph, v, ne, nb);
    }
    uint64_t row = mt_graph_row_bytes(v->type, v->ne[1]);
    const uint64_t ne[4] = {v->ne[1], layer->kv_heads, layer->value_size, net->streams};
    const uint64_t nb[4] = {v->nb[0], row * layer->value_size, row, v->nb[2]};
    return mt_op_view(net->graph, v, ne, nb);
}

/* Latent attention reads its values out of the keys. */
static struct mt_node *values_in_keys(struct mt_net *net, struct mt_node *k, uint64_t size)
{
    return mt_op_view(net->graph, k, (uint64_t[4]){size, k->ne[1], k->ne[2], k->ne[3]}, k->nb);
}

static struct mt_node *mask_of(struct mt_net *net, size_t il)
{
    return net->mask_of_layer ? net->mask_of_layer : cache_inputs_of(net, il)->mask;
}

static struct mt_node *flash(struct mt_net *net, struct mt_node *q, struct mt_node *k,
                             struct mt_node *v, size_t il, struct mt_node *decompress)
{
    struct mt_graph *g = net->graph;
    struct mt_node *x = mt_op_flash_attention(g, q, k, v, mask_of(net, il),
                                              mt_net_maybe(net, il, MT_SLOT_ATTN_SINKS));
    if (decompress) {
        x = mt_op_mul_mat(g, decompress, mt_op_permute(g, x, 0, 2, 1, 3));
        x = mt_op_like(g, mt_op_permute(g, x, 0, 2, 1, 3));
    }
    return mt_op_reshape(g, x, x->ne[0] * x->ne[1], x->ne[2] * x->ne[3], 1, 1);
}

static struct mt_node *product(struct mt_net *net, struct mt_node *q, struct mt_node *k,
                               struct mt_node *v, size_t il, struct mt_node *decompress)
{
    struct mt_graph *g = net->graph;
    int transposed = v->nb[1] < v->nb[2];
    struct mt_node *kq = mt_op_mul_mat(g, k, q);
    kq = mt_op_soft_max(g, kq, mask_of(net, il), mt_net_maybe(net, il, MT_SLOT_ATTN_SINKS));
    if (!transposed)
        v = mt_op_like(g, mt_op_transpose(g, v));
    struct mt_node *x = mt_op_mul_mat(g, v, kq);
    if (decompress)
        x = mt_op_mul_mat(g, decompress, x);
    x = mt_op_permute(g, x, 0, 2, 1, 3);
    x = mt_op_cont(g, x, x->ne[0] * x->ne[1], x->ne[2] * x->ne[3], 1);
    if (net->pins_attention)
        x->backend = (int8_t)net->host;
    return x;
}

static struct mt_node *heads_first(struct mt_net *net, struct mt_node *x)
{
    return mt_op_permute(net->graph, x, 0, 2, 1, 3);
}

/* Flash attention reads no numbers of 32 bits. */
struct mt_node *mt_net_as_halves(struct mt_net *net, struct mt_node *x)
{
    if (x->type != MT_TYPE_F32)
        return x;
    struct mt_node *y = mt_node_new(net->graph, MT_OP_NEW, MT_TYPE_F16, x->ne);
    y->sources[0] = x;
    return y;
}

static struct mt_node *attend_cached(struct mt_net *net, struct mt_node *q, struct mt_node *k,
                                     struct mt_node *v, size_t il, struct mt_node *decompress)
{
    struct mt_graph *g = net->graph;
    uint64_t streams = k->ne[3];
    uint64_t n = q->ne[2] / streams;
    const uint64_t ne[4] = {q->ne[0], q->ne[1], n, streams};
    const uint64_t nb[4] = {q->nb[0], q->nb[1], q->nb[2], q->nb[2] * n};
    int transposed = v->nb[1] > v->nb[2];
    q = heads_first(net, mt_op_view(g, q, ne, nb));
    k = heads_first(net, k);
    v = heads_first(net, v);
    struct mt_node *x;
    if (net->plan->flash_attention) {
        if (transposed)
            v = mt_op_transpose(g, v);
        k = mt_net_as_halves(net, k);
        v = mt_net_as_halves(net, v);
        x = flash(net, q, k, v, il, decompress);
    } else {
        x = product(net, q, k, v, il, decompress);
    }
    mt_graph_expand(g, x);
    return x;
}

/* Keys or values of a batch, up to a whole step. */
static struct mt_node *padded(struct mt_net *net, struct mt_node *x)
{
    const uint64_t ne[4] = {x->ne[0], x->ne[1], mt_net_keys_of_batch(net), 1};
    return mt_op_make(net->graph, ne, x, NULL, NULL);
}

uint64_t mt_net_keys_of_batch(const struct mt_net *net)
{
    int pads = net->newer & MT_NEWER_PADDED && net->plan->flash_attention;
    return pads ? mt_llama_padded(net->tokens, MT_FLASH_STRIDE_OF_KEYS) : net->tokens;
}

struct mt_node *mt_net_attend_batch(struct mt_net *net, const struct mt_net_qkv *qkv, size_t il,
                                    struct mt_node *mask)
{
    mt_graph_expand(net->graph, qkv->q);
    mt_graph_expand(net->graph, qkv->k);
    mt_graph_expand(net->graph, qkv->v);
    net->mask_of_layer = mask;
    int pads = net->newer & MT_NEWER_PADDED && net->plan->flash_attention;
    struct mt_node *k = pads ? padded(net, qkv->k) : qkv->k;
    struct mt_node *v = pads ? padded(net, qkv->v) : qkv->v;
    return attend_cached(net, qkv->q, k, v, il, NULL);
}

struct mt_node *mt_net_attend(struct mt_net *net, const struct mt_net_qkv *qkv, size_t il,
                              struct mt_node *decompress)
{
    struct mt_graph *g = net->graph;
    struct mt_net_cache *inputs = cache_inputs_of(net, il);
    struct mt_net_layer *cache = cache_of(net, il);
    int latent = net->d->layers[il].attention == MT_ATTENTION_LATENT;
    int windows = net->windowed.k_rows != NULL;
    struct mt_node *q = rotated(net, qkv->q, inputs->k_rotation);
    struct mt_node *k = qkv->k ? rotated(net, qkv->k, inputs->k_rotation) : NULL;
    struct mt_node *v = qkv->v ? rotated(net, qkv->v, inputs->v_rotation) : NULL;
    mt_graph_expand(g, q);
    if (k && windows)
        mt_graph_expand(g, k);
    if (v)
        mt_graph_expand(g, v);
    if (k)
        mt_graph_expand(g, k);
    if (k)
        mt_net_store_rows(net, k, cache->k, inputs->k_rows);
    if (v && !latent)
        store_values(net, v, cache, inputs);
    struct mt_node *keys = cached_keys(net, il);
    struct mt_node *values = latent ? values_in_keys(net, keys, v->ne[0]) : cached_values(net, il);
    struct mt_node *x = attend_cached(net, q, keys, values, il, decompress);
    return rotated(net, x, inputs->v_rotation);
}

static struct mt_net_qkv fused_qkv(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    const struct mt_model_layer *l = &net->d->layers[il];
    uint64_t width = (l->heads + l->kv_heads) * l->key_size + l->kv_heads * l->value_size;
    struct mt_node *all = mt_net_project(net, x, il, MT_SLOT_ATTN_QKV, width);
    all = mt_net_biased(net, all, il, MT_SLOT_ATTN_QKV_B);
    uint64_t row = mt_graph_row_bytes(MT_TYPE_F32, l->key_size);
    struct mt_net_qkv qkv;
    qkv.q = mt_op_heads(g, all, l->key_size, l->heads, row);
    qkv.k = mt_op_heads(g, all, l->key_size, l->kv_heads, row);
    qkv.v = mt_op_heads(g, all, l->value_size, l->kv_heads,
                        mt_graph_row_bytes(MT_TYPE_F32, l->value_size));
    return qkv;
}

struct mt_net_qkv mt_net_qkv(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    const struct mt_model_layer *l = &net->d->layers[il];
    struct mt_net_qkv qkv;
    if (mt_net_has(net, il, MT_SLOT_ATTN_QKV))
        return fused_qkv(net, x, il);
    uint64_t n = x->ne[1];
    qkv.q = mt_net_project(net, x, il, MT_SLOT_ATTN_Q, l->heads * l->key_size);
    qkv.q = mt_net_biased(net, qkv.q, il, MT_SLOT_ATTN_Q_B);
    qkv.k = mt_net_project(net, x, il, MT_SLOT_ATTN_K, l->kv_heads * l->key_size);
    qkv.k = mt_net_biased(net, qkv.k, il, MT_SLOT_ATTN_K_BIAS);
    qkv.v = mt_net_project(net, x, il, MT_SLOT_ATTN_V, l->kv_heads * l->value_size);
    qkv.v = mt_net_biased(net, qkv.v, il, MT_SLOT_ATTN_V_BIAS);
    qkv.q = mt_op_reshape(g, qkv.q, l->key_size, l->heads, n, 1);
    qkv.k = mt_op_reshape(g, qkv.k, l->key_size, l->kv_heads, n, 1);
    qkv.v = mt_op_reshape(g, qkv.v, l->value_size, l->kv_heads, n, 1);
    return qkv;
}

/* Frequencies of the rotation that the file brings: one tensor on each backend that has layers. */
static struct mt_node *factors_of(struct mt_net *net, size_t il)
{
    static const enum mt_slot slots[] = {MT_SLOT_ROPE_LONG, MT_SLOT_ROPE_FREQS};
    struct mt_node **factors = &net->factors[mt_net_backend(net, il)];
    for (size_t i = 0; !*factors && i < sizeof slots / sizeof *slots; i++) {
        struct mt_net_weight *weight = &net->layers[net->n_layers].weights[slots[i]];
        if (!weight->present)
            continue;
        *factors = mt_op_external(net->graph, MT_TYPE_F32, weight->ne, mt_net_backend(net, il));
        (*factors)->flags |= MT_NODE_WEIGHT;
    }
    return *factors;
}

struct mt_node *mt_net_rope(struct mt_net *net, struct mt_node *x, size_t il)
{
    int plain = net->windowed.k_rows && mt_net_is_windowed(net, il) && net->windows_rotate_plainly;
    return mt_op_rope(net->graph, x, net->positions, plain ? NULL : factors_of(net, il));
}

static struct mt_node *normed(struct mt_net *net, struct mt_node *x, size_t il, enum mt_slot slot,
                              unsigned traits)
{
    if (!mt_net_expects(net, il, slot))
        return x;
    return mt_net_norm(net, x, il, slot, traits & MT_NET_LAYER_NORM);
}

/* Whether queries and keys are normed with all heads together. */
static int norms_all_heads(const struct mt_net *net, size_t il)
{
    const struct mt_net_weight *norm = &net->layers[il].weights[MT_SLOT_ATTN_Q_NORM];
    const struct mt_model_layer *l = &net->d->layers[il];
    return norm->present && l->heads > 1 && norm->ne[0] == l->heads * l->key_size;
}

static struct mt_net_qkv normed_qkv(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    const struct mt_model_layer *l = &net->d->layers[il];
    uint64_t n = x->ne[1];
    struct mt_net_qkv qkv;
    qkv.q = mt_net_project(net, x, il, MT_SLOT_ATTN_Q, l->heads * l->key_size);
    qkv.q = mt_net_biased(net, qkv.q, il, MT_SLOT_ATTN_Q_B);
    qkv.k = mt_net_project(net, x, il, MT_SLOT_ATTN_K, l->kv_heads * l->key_size);
    qkv.k = mt_net_biased(net, qkv.k, il, MT_SLOT_ATTN_K_BIAS);
    qkv.v = mt_net_project(net, x, il, MT_SLOT_ATTN_V, l->kv_heads * l->value_size);
    qkv.v = mt_net_biased(net, qkv.v, il, MT_SLOT_ATTN_V_BIAS);
    qkv.q = mt_net_norm(net, qkv.q, il, MT_SLOT_ATTN_Q_NORM, 0);
    qkv.k = mt_net_norm(net, qkv.k, il, MT_SLOT_ATTN_K_NORM, 0);
    qkv.q = mt_op_reshape(g, qkv.q, l->key_size, l->heads, n, 1);
    qkv.k = mt_op_reshape(g, qkv.k, l->key_size, l->kv_heads, n, 1);
    qkv.v = mt_op_reshape(g, qkv.v, l->value_size, l->kv_heads, n, 1);
    return qkv;
}

static int rotates(const struct mt_net *net, size_t il, unsigned traits)
{
    if (traits & MT_NET_NO_ROPE || (traits & MT_NET_ROPE_THREE_OF_FOUR && (il + 1) % 4 == 0))
        return 0;
    if (!net->windowed.k_rows && net->d->architecture &&
        strcmp(net->d->architecture, "exaone4") == 0)
        return 1;
    return !(traits & MT_NET_ROPE_WINDOWED) || mt_net_is_windowed(net, il);
}

/* Queries and keys, normed and rotated in the order of the family. */
static void place_heads(struct mt_net *net, struct mt_net_qkv *qkv, size_t il, unsigned traits)
{
    int rope = rotates(net, il, traits);
    int late = !!(traits & MT_NET_NORMS_QK_AFTER);
    int early = !late && !norms_all_heads(net, il);
    if (early)
        qkv->q = normed(net, qkv->q, il, MT_SLOT_ATTN_Q_NORM, traits);
    if (rope)
        qkv->q = mt_net_rope(net, qkv->q, il);
    if (early)
        qkv->k = normed(net, qkv->k, il, MT_SLOT_ATTN_K_NORM, traits);
    if (rope)
        qkv->k = mt_net_rope(net, qkv->k, il);
    if (late && mt_net_expects(net, il, MT_SLOT_ATTN_Q_NORM)) {
        qkv->q = normed(net, qkv->q, il, MT_SLOT_ATTN_Q_NORM, traits);
        qkv->k = normed(net, qkv->k, il, MT_SLOT_ATTN_K_NORM, traits);
    } else if (late && rope) {
        qkv->q = mt_op_map(net->graph, qkv->q, NULL);
        qkv->k = mt_op_map(net->graph, qkv->k, NULL);
    }
}

struct mt_node *mt_net_attention(struct mt_net *net, struct mt_node *x, size_t il, unsigned traits)
{
    struct mt_graph *g = net->graph;
    uint64_t embedding = net->d->embedding_length;
    struct mt_net_qkv qkv =
        norms_all_heads(net, il) ? normed_qkv(net, x, il) : mt_net_qkv(net, x, il);
    place_heads(net, &qkv, il, traits);
    if (net->attention_scale && (!(traits & MT_NET_TEMPERATURE) || !rotates(net, il, traits)))
        qkv.q = mt_op_map(g, qkv.q, net->attention_scale);
    if (traits & MT_NET_SCALES_QUERIES)
        qkv.q = mt_op_map(g, qkv.q, NULL);
    x = mt_net_attend(net, &qkv, il, NULL);
    x = mt_net_project(net, x, il, MT_SLOT_ATTN_OUT, embedding);
    return mt_net_biased(net, x, il, MT_SLOT_ATTN_OUT_B);
}

/* Queries come with a gate for the output of their head beside them. */
struct mt_node *mt_net_gated_attention(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    const struct mt_model_layer *l = &net->d->layers[il];
    uint64_t embedding = x->ne[0];
    uint64_t n = x->ne[1];
    uint64_t size = l->key_size;
    uint64_t row = mt_graph_row_bytes(MT_TYPE_F32, 2 * size);
    struct mt_net_qkv qkv;
    struct mt_node *both = mt_net_project(net, x, il, MT_SLOT_ATTN_Q, 2 * size * l->heads);
    qkv.k = mt_net_project(net, x, il, MT_SLOT_ATTN_K, size * l->kv_heads);
    qkv.v = mt_net_project(net, x, il, MT_SLOT_ATTN_V, l->value_size * l->kv_heads);
    qkv.q = normed(net, mt_op_heads(g, both, size, l->heads, row), il, MT_SLOT_ATTN_Q_NORM, 0);
    qkv.k = mt_op_reshape(g, qkv.k, size, l->kv_heads, n, 1);
    qkv.k = normed(net, qkv.k, il, MT_SLOT_ATTN_K_NORM, 0);
    struct mt_node *gate = mt_op_heads(g, both, size, l->heads, row);
    qkv.v = mt_op_reshape(g, qkv.v, l->value_size, l->kv_heads, n, 1);
    qkv.q = mt_net_rope(net, qkv.q, il);
    qkv.k = mt_net_rope(net, qkv.k, il);
    x = mt_net_attend(net, &qkv, il, NULL);
    gate = mt_op_cont(g, gate, size * l->heads, n, 1);
    if (!(net->newer & MT_NEWER_GATE) && net->d->position_streams == 1)
        gate = mt_op_reshape(g, gate, size * l->heads, n, 1, 1);
    x = mt_op_map(g, x, mt_op_map(g, gate, NULL));
    return mt_net_project(net, x, il, MT_SLOT_ATTN_OUT, embedding);
}

static struct mt_node *latent_queries(struct mt_net *net, struct mt_node *x, size_t il,
                                      uint64_t size)
{
    const struct mt_model_description *d = net->d;
    uint64_t width = size * d->layers[il].heads;
    if (!d->q_lora_rank)
        return mt_net_project(net, x, il, MT_SLOT_ATTN_Q, width);
    struct mt_node *in = x;
    x = mt_net_project(net, x, il, MT_SLOT_ATTN_Q_A, d->q_lora_rank);
    x = mt_net_norm(net, x, il, MT_SLOT_ATTN_Q_A_NORM, 0);
    if (mt_net_is_sparse(net))
        mt_net_choose_tokens(net, in, x, il);
    return mt_net_project(net, x, il, MT_SLOT_ATTN_Q_LORA_B, width);
}

struct mt_node *mt_net_latent_attention(struct mt_net *net, struct mt_node *x, size_t il,
                                        unsigned traits)
{
    struct mt_graph *g = net->graph;
    const struct mt_model_description *d = net->d;
    uint64_t heads = d->layers[il].heads;
    uint64_t rank = d->kv_lora_rank;
    uint64_t rope = d->qk_rope_head_size;
    uint64_t nope = d->qk_nope_head_size;
    uint64_t n = x->ne[1];
    struct mt_node *q = latent_queries(net, x, il, nope + rope);
    q = mt_op_reshape(g, q, nope + rope, heads, n, 1);
    struct mt_node *both = mt_net_project(net, x, il, MT_SLOT_ATTN_KV_A, rank + rope);
    struct mt_node *compressed = mt_op_columns(g, both, rank);
    struct mt_node *k_rope = mt_op_heads(g, both, rope, 1, both->nb[1]);
    int rotates_part = !(traits & MT_NET_NO_ROPE);
    if (rotates_part)
        k_rope = mt_net_rope(net, k_rope, il);
    compressed = mt_net_norm(net, compressed, il, MT_SLOT_ATTN_KV_A_NORM, 0);
    struct mt_node *q_nope = mt_op_columns(g, q, nope);
    struct mt_node *q_rope = mt_op_columns(g, q, rope);
    if (rotates_part)
        q_rope = mt_net_rope(net, q_rope, il);
    struct mt_node *up = mt_net_weight(net, il, MT_SLOT_ATTN_K_LORA_B, nope, rank, heads);
    struct mt_node *absorbed = mt_op_mul_mat(g, up, mt_op_permute(g, q_nope, 0, 2, 1, 3));
    absorbed = mt_op_permute(g, absorbed, 0, 2, 1, 3);
    struct mt_net_qkv qkv;
    qkv.q = mt_op_concat(g, absorbed, q_rope, 0);
    compressed = mt_op_reshape(g, compressed, rank, 1, n, 1);
    qkv.k = mt_op_concat(g, compressed, k_rope, 0);
    qkv.v = compressed;
    if (net->attention_scale)
        qkv.q = mt_op_map(g, qkv.q, net->attention_scale);
    struct mt_node *down =
        mt_net_weight(net, il, MT_SLOT_ATTN_V_LORA_B, rank, d->value_head_size, heads);
    x = mt_net_attend(net, &qkv, il, down);
    return mt_net_project(net, x, il, MT_SLOT_ATTN_OUT, d->embedding_length);
}

/* Of a file that holds the matrix of both (attn_kv_b): keys and values of all heads are made and
 * cached; the rotated part of the keys, one for all heads, is repeated for each in older builds. */
struct mt_node *mt_net_latent_in_heads(struct mt_net *net, struct mt_node *x, size_t il,
                                       unsigned traits)
{
    struct mt_graph *g = net->graph;
    const struct mt_model_description *d = net->d;
    uint64_t heads = d->layers[il].heads;
    uint64_t rank = d->kv_lora_rank;
    uint64_t rope = d->qk_rope_head_size;
    uint64_t nope = d->qk_nope_head_size;
    uint64_t value = d->value_head_size;
    uint64_t n = x->ne[1];
    struct mt_node *q = latent_queries(net, x, il, nope + rope);
    q = mt_op_reshape(g, q, nope + rope, heads, n, 1);
    struct mt_node *both = mt_net_project(net, x, il, MT_SLOT_ATTN_KV_A, rank + rope);
    struct mt_node *compressed = mt_op_columns(g, both, rank);
    struct mt_node *k_rope = mt_op_heads(g, both, rope, 1, both->nb[1]);
    int rotates_part = !(traits & MT_NET_NO_ROPE);
    struct mt_node *q_rope = mt_op_columns(g, q, rope);
    if (rotates_part) {
        q_rope = mt_net_rope(net, q_rope, il);
        k_rope = mt_net_rope(net, k_rope, il);
    }
    compressed = mt_net_norm(net, compressed, il, MT_SLOT_ATTN_KV_A_NORM, 0);
    struct mt_node *kv =
        mt_net_project(net, compressed, il, MT_SLOT_ATTN_KV_LORA_B, heads * (nope + value));
    uint64_t row = mt_graph_row_bytes(MT_TYPE_F32, nope + value);
    struct mt_node *k_nope = mt_op_heads(g, kv, nope, heads, row);
    struct mt_net_qkv qkv;
    qkv.v = mt_op_cont(g, mt_op_heads(g, kv, value, heads, row), value, heads, n);
    qkv.q = mt_op_concat(g, mt_op_columns(g, q, nope), q_rope, 0);
    if (!(net->newer & MT_NEWER_STATES))
        k_rope = mt_op_repeat(g, k_rope, rope, heads, n, 1);
    qkv.k = mt_op_concat(g, k_nope, k_rope, 0);
    x = mt_net_attend(net, &qkv, il, NULL);
    return mt_net_project(net, x, il, MT_SLOT_ATTN_OUT, d->embedding_length);
}
