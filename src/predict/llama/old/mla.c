/* SPDX-License-Identifier: MIT */
/* Latent attention in older llama.cpp graphs: DeepSeek's compressed keys and values, which
 * ik_llama.cpp attends to in one of several ways (-mla 0 … 3), in steps of a limited size (-amb).
 */
#include "internal.h"

#include <string.h>

struct latent {
    uint64_t heads;
    uint64_t nope; /* of a head's key, without its rotary part */
    uint64_t rope;
    uint64_t value;
    uint64_t rank;
    struct mt_node *q; /* [nope + rope, heads, tokens] */
    struct mt_node *q_nope;
    struct mt_node *q_rope;
    struct mt_node *k_rope;
    struct mt_node *compressed;
};

static struct mt_old_shape cache_type(const struct mt_old *b, uint64_t ne0, uint64_t ne1,
                                      uint64_t ne2)
{
    struct mt_old_shape shape = mt_old_f16(ne0, ne1, ne2);
    if (!b->host && !b->rules.half_latent) /* the CPU alone kept the cache's own type */
        shape.bytes = mt_llama_type_bytes(b->plan->type_k, ne0) * ne1 * ne2;
    return shape;
}

static void queries(struct mt_old *b, struct mt_node *x, struct latent *l)
{
    uint64_t lora = b->d->q_lora_rank;
    uint64_t size = l->nope + l->rope;
    if (lora) {
        struct mt_node *a = mt_old_matrix(b, MT_OLD_ATTN_Q_A, x, lora);
        a = mt_old_norm(b, a, mt_old_f32(lora, b->tokens, 1));
        l->q = mt_old_matrix(b, MT_OLD_ATTN_Q_B, a, l->heads * size);
    } else {
        l->q = mt_old_matrix(b, MT_OLD_ATTN_Q, x, l->heads * size);
    }
    l->q_nope = mt_old_slice(b, mt_old_f32(l->nope, l->heads, b->tokens), l->q);
    l->q_rope = mt_old_slice(b, mt_old_f32(l->rope, l->heads, b->tokens), l->q);
    l->q_rope = mt_old_rope(b, l->q_rope, mt_old_f32(l->rope, l->heads, b->tokens));
}

static void keys(struct mt_old *b, struct mt_node *x, struct latent *l)
{
    struct mt_node *kv = mt_old_matrix(b, MT_OLD_ATTN_KV_A, x, l->rank + l->rope);
    l->k_rope = mt_old_slice(b, mt_old_f32(l->rope, 1, b->tokens), kv);
    l->k_rope = mt_old_rope(b, l->k_rope, mt_old_f32(l->rope, 1, b->tokens));
    l->compressed = mt_old_slice(b, mt_old_f32(l->rank, b->tokens, 1), kv);
    l->compressed = mt_old_norm(b, l->compressed, mt_old_f32(l->rank, b->tokens, 1));
}

/* Keys and values of all heads, as if there were no compression. */
static struct mt_node *in_full(struct mt_old *b, struct latent *l)
{
    struct mt_model_layer full = *b->layer;
    full.heads = full.kv_heads = l->heads;
    full.key_size = l->nope + l->rope;
    full.value_size = l->value;
    struct mt_node *kv =
        mt_old_matrix(b, MT_OLD_ATTN_KV_B, l->compressed, l->heads * (l->nope + l->value));
    struct mt_node *k_nope = mt_old_slice(b, mt_old_f32(l->nope, l->heads, b->tokens), kv);
    struct mt_old_shape values = mt_old_f32(l->value, l->heads, b->tokens);
    struct mt_node *v = mt_old_op(b, values, mt_old_slice(b, values, kv), NULL);
    v = mt_old_view(b, mt_old_f32(l->value * l->heads, b->tokens, 1), v);
    struct mt_old_shape whole = mt_old_f32(full.key_size, l->heads, b->tokens);
    struct mt_node *q = mt_old_op(b, whole, l->q_nope, l->q_rope);
    struct mt_node *repeated =
        mt_old_op(b, mt_old_f32(l->rope, l->heads, b->tokens), l->k_rope, l->q_rope);
    struct mt_node *k = mt_old_op(b, whole, k_nope, repeated);
    const struct mt_model_layer *compressed = b->layer;
    b->layer = &full;
    struct mt_node *out = mt_old_attention(b, q, k, v);
    b->layer = compressed;
    return out;
}

static struct mt_node *latent_cache(struct mt_old *b, uint64_t ne0)
{
    struct mt_node *cache = mt_old_cache(b, b->cache_backend);
    return mt_old_slice(b, mt_old_f16(ne0, b->kv_cells, 1), cache);
}

static void store_latent(struct mt_old *b, const struct latent *l)
{
    struct mt_node *permuted = mt_old_slice(b, mt_old_f32(l->rope, b->tokens, 1), l->k_rope);
    struct mt_node *kvr =
        mt_old_op(b, mt_old_f32(l->rank + l->rope, b->tokens, 1), permuted, l->compressed);
    struct mt_node *part = latent_cache(b, l->rank + l->rope);
    mt_graph_expand(b->graph, mt_op_copy(b->graph, kvr, part));
}

/* Heads that are decompressed at a time: halved while their keys and values are over the limit. */
static uint64_t heads_at_a_time(const struct mt_old *b, const struct latent *l)
{
    uint64_t heads = l->heads;
    uint64_t mib = l->heads * (l->nope + l->value) * b->kv_cells * 4 >> 20;
    while (b->rules.attn_max_batch_mib && heads % 2 == 0 && mib > b->rules.attn_max_batch_mib) {
        heads /= 2;
        mib /= 2;
    }
    return heads;
}

/* A part of the matrix that makes keys and values of all heads; both halves of it are as large
 * where the file holds them apart. */
static struct mt_node *decompressor(struct mt_old *b, const struct latent *l, uint64_t columns)
{
    uint64_t all = l->heads * (l->nope + l->value);
    uint64_t bytes = b->weights[MT_OLD_ATTN_KV_B];
    if (!bytes)
        bytes = mt_llama_type_bytes("q8_0", all * l->rank);
    return mt_old_weight(b, b->backend, bytes / all * columns);
}

static struct mt_node *decompressed(struct mt_old *b, const struct latent *l, struct mt_node *q,
                                    struct mt_node *k_rope, uint64_t heads)
{
    uint64_t cells = b->kv_cells;
    uint64_t both = l->nope + l->value;
    struct mt_node *w = decompressor(b, l, both * heads);
    struct mt_node *kv = mt_old_streamed(
        b, mt_old_op(b, mt_old_f32(both * heads, cells, 1), w, latent_cache(b, l->rank)));
    struct mt_node *v32 = mt_old_slice(b, mt_old_f32(l->value, cells, heads), kv);
    struct mt_node *k32 = mt_old_slice(b, mt_old_f32(l->nope, cells, heads), kv);
    struct mt_node *v = mt_old_op(b, cache_type(b, l->value, cells, heads), v32, NULL);
    struct mt_node *k_nope = mt_old_op(b, cache_type(b, l->nope, cells, heads), k32, NULL);
    mt_graph_expand(b->graph, k_nope);
    mt_graph_expand(b->graph, v);
    struct mt_node *k =
        mt_old_op(b, cache_type(b, l->nope + l->rope, cells, heads), k_rope, k_nope);
    mt_graph_expand(b->graph, k);
    struct mt_node *part = mt_old_slice(b, mt_old_f32(l->nope + l->rope, b->tokens, heads), q);
    struct mt_node *const sources[MT_OLD_SOURCES] = {part, k, v, b->mask, NULL};
    struct mt_node *out = mt_old_make(b, mt_old_f32(l->value, heads, b->tokens), sources);
    return mt_old_view(b, mt_old_f32(l->value * heads, b->tokens, 1), out);
}

/* -mla 2 and 3 with flash attention: keys and values of the whole cache are decompressed, some
 * heads at a time. */
static struct mt_node *by_decompression(struct mt_old *b, struct latent *l)
{
    uint64_t heads = heads_at_a_time(b, l);
    struct mt_node *k_rope = latent_cache(b, l->rope);
    struct mt_old_shape repeated = cache_type(b, l->rope, b->kv_cells, heads);
    if ((b->host || b->rules.half_latent) &&
        strcmp(b->plan->type_k, "f16") != 0) /* another type goes by way of f16 */
        k_rope = mt_old_op(b, mt_old_f16(l->rope, b->kv_cells, 1), k_rope, NULL);
    k_rope = mt_old_op(b, repeated, k_rope, NULL);
    struct mt_old_shape whole = mt_old_f32(l->nope + l->rope, l->heads, b->tokens);
    struct mt_node *q = mt_old_op(b, whole, l->q_rope, l->q_nope);
    q = mt_old_slice(b, mt_old_f32(l->nope + l->rope, b->tokens, l->heads), q);
    mt_graph_expand(b->graph, q);
    struct mt_node *out = NULL;
    for (uint64_t done = 0; done < l->heads && !b->graph->failed; done += heads) {
        struct mt_node *next = decompressed(b, l, q, k_rope, heads);
        out = out == NULL
                  ? next
                  : mt_old_op(b, mt_old_f32(l->value * (done + heads), b->tokens, 1), out, next);
    }
    return out ? out : q;
}

/* The same in the first builds that could: by way of f32, all heads at once. */
static struct mt_node *by_early_decompression(struct mt_old *b, struct latent *l)
{
    uint64_t cells = b->kv_cells;
    uint64_t both = l->nope + l->value;
    uint64_t size = l->nope + l->rope;
    struct mt_node *cache = mt_old_op(b, mt_old_f32(l->rank + l->rope, cells, 1),
                                      latent_cache(b, l->rank + l->rope), NULL);
    struct mt_node *w = decompressor(b, l, both * l->heads);
    struct mt_node *part = mt_old_slice(b, mt_old_f32(l->rank, cells, 1), cache);
    struct mt_node *kv =
        mt_old_streamed(b, mt_old_op(b, mt_old_f32(both * l->heads, cells, 1), w, part));
    struct mt_node *k_nope = mt_old_slice(b, mt_old_f32(l->nope, cells, l->heads), kv);
    struct mt_node *k_rope = mt_old_op(b, mt_old_f32(l->rope, l->heads, cells),
                                       mt_old_slice(b, mt_old_f32(l->rope, 1, cells), cache), NULL);
    k_rope = mt_old_slice(b, mt_old_f32(l->rope, cells, l->heads), k_rope);
    struct mt_node *k = mt_old_op(b, mt_old_f32(size, cells, l->heads), k_nope, k_rope);
    k = mt_old_op(b, mt_old_f16(size, cells, l->heads), k, NULL);
    struct mt_node *v = mt_old_slice(b, mt_old_f32(l->value, cells, l->heads), kv);
    v = mt_old_op(b, mt_old_f16(l->value, cells, l->heads), v, NULL);
    struct mt_node *q = mt_old_op(b, mt_old_f32(size, l->heads, b->tokens), l->q_nope, l->q_rope);
    q = mt_old_slice(b, mt_old_f32(size, b->tokens, l->heads), q);
    struct mt_node *const sources[MT_OLD_SOURCES] = {q, k, v, b->mask};
    struct mt_node *out = mt_old_make(b, mt_old_f32(l->value, l->heads, b->tokens), sources);
    return mt_old_view(b, mt_old_f32(l->value * l->heads, b->tokens, 1), out);
}

/* Scores of some heads at a time, where a limit is set. */
static struct mt_node *scores_in_steps(struct mt_old *b, const struct latent *l, struct mt_node *q,
                                       struct mt_node *cache, struct mt_node *turned)
{
    uint64_t limit = b->rules.attn_max_batch_mib;
    uint64_t mib = b->kv_cells * b->tokens * l->heads * 4 >> 20;
    uint64_t steps = limit && mib > limit ? (mib + limit - 1) / limit : 1;
    steps = steps < l->heads ? steps : l->heads;
    uint64_t heads = (l->heads + steps - 1) / steps;
    struct mt_node *out = NULL;
    for (uint64_t done = 0; done < l->heads && !b->graph->failed; done += heads) {
        uint64_t n = done + heads <= l->heads ? heads : l->heads - done;
        struct mt_node *part =
            n == l->heads ? q : mt_old_slice(b, mt_old_f32(l->rank + l->rope, b->tokens, n), q);
        struct mt_old_shape scores = mt_old_f32(b->kv_cells, b->tokens, n);
        struct mt_node *kq = mt_old_op(b, scores, cache, part);
        kq = mt_old_inplace(b, scores, kq, b->mask);
        struct mt_node *kqv = mt_old_op(b, mt_old_f32(l->rank, b->tokens, n), turned, kq);
        out = out == NULL ? kqv : mt_old_op(b, mt_old_f32(l->rank, b->tokens, done + n), out, kqv);
        if (steps > 1)
            mt_graph_expand(b->graph, out);
    }
    return out ? out : q;
}

static struct mt_node *turned_cache(struct mt_old *b, const struct latent *l)
{
    struct mt_node *cache = latent_cache(b, l->rank);
    if (b->rules.mla_mode <= 1)
        return cache;
    struct mt_old_shape shape = mt_old_f16(b->kv_cells, l->rank, 1);
    shape.bytes = mt_llama_type_bytes(b->plan->type_k, b->kv_cells * l->rank);
    return mt_old_op(b, shape, mt_old_slice(b, shape, cache), NULL);
}

/* Attention to the compressed cache itself: one head of keys for all. */
static struct mt_node *by_absorption(struct mt_old *b, struct latent *l)
{
    struct mt_old_shape wide = mt_old_f32(l->rank + l->rope, b->tokens, l->heads);
    struct mt_node *w = decompressor(b, l, l->heads * l->nope);
    struct mt_node *nope = mt_old_slice(b, mt_old_f32(l->nope, b->tokens, l->heads), l->q_nope);
    struct mt_node *absorbed =
        mt_old_streamed(b, mt_old_op(b, mt_old_f32(l->rank, b->tokens, l->heads), w, nope));
    struct mt_node *rope = mt_old_slice(b, mt_old_f32(l->rope, b->tokens, l->heads), l->q_rope);
    struct mt_node *q = mt_old_op(b, wide, rope, absorbed);
    struct mt_node *cache = latent_cache(b, l->rank + l->rope);
    struct mt_node *out;
    if (b->plan->flash_attention) {
        struct mt_node *const sources[MT_OLD_SOURCES] = {q, cache, latent_cache(b, l->rank),
                                                         b->mask, NULL};
        out = mt_old_make(b, mt_old_f32(l->rank, l->heads, b->tokens), sources);
        out = mt_old_slice(b, mt_old_f32(l->rank, b->tokens, l->heads), out);
    } else {
        out = scores_in_steps(b, l, q, cache, turned_cache(b, l));
    }
    w = decompressor(b, l, l->heads * l->value);
    out = mt_old_streamed(b, mt_old_op(b, mt_old_f32(l->value, b->tokens, l->heads), w, out));
    out = mt_old_slice(b, mt_old_f32(l->value, l->heads, b->tokens), out);
    out = mt_old_op(b, mt_old_f32(l->value, l->heads, b->tokens), out, NULL);
    return mt_old_view(b, mt_old_f32(l->value * l->heads, b->tokens, 1), out);
}

struct mt_node *mt_old_mla_block(struct mt_old *b, struct mt_node *x)
{
    struct latent l = {.heads = b->layer->heads,
                       .nope = b->d->qk_nope_head_size,
                       .rope = b->d->qk_rope_head_size,
                       .value = b->d->value_head_size,
                       .rank = b->d->kv_lora_rank};
    if (!l.heads)
        return x;
    b->graph->part = MT_OLD_ATTENTION;
    queries(b, x, &l);
    keys(b, x, &l);
    struct mt_node *out;
    if (!b->rules.mla_mode) {
        out = in_full(b, &l);
    } else {
        store_latent(b, &l);
        out =
            b->rules.mla_mode > 1 && b->plan->flash_attention && b->tokens >= 128
                ? (b->rules.early_latent ? by_early_decompression(b, &l) : by_decompression(b, &l))
                : by_absorption(b, &l);
    }
    mt_graph_expand(b->graph, out);
    return mt_old_matrix(b, MT_OLD_ATTN_OUTPUT, out, b->d->embedding_length);
}
