/* SPDX-License-Identifier: MIT */
/* The graphs of encoders: the tokens of a batch attend to each other, nothing is kept, and what
 * comes out is the hidden state. */
#include <string.h>

#include "build.h"
#include "predict/llama/internal.h"

enum kind { BERT, NOMIC, GEMMA, MODERN };

struct encoder {
    int is_there;
    enum kind kind;
    unsigned period; /* each period-th layer attends to all; 0: all do */
    int first;       /* the first of the period, not the last */
};

static const struct encoder encoders[MT_ARCH_UNKNOWN] = {
#define ENCODER(id, kind, period, first) [MT_ARCH_##id] = {1, kind, period, first},
#include "model/families.def"
};

struct encoding {
    struct mt_build *build;
    const struct encoder *encoder;
    struct mt_node *mask;
    struct mt_node *windowed_mask;
};

static struct mt_node *mask_input(struct mt_build *build)
{
    return mt_build_mask(build, (uint64_t[4]){mt_build_keys_of_batch(build), build->tokens, 1, 1});
}

static struct mt_node *mask_for(const struct encoding *e, size_t il)
{
    unsigned period = e->encoder->period;
    if (!period || !e->windowed_mask)
        return e->mask;
    int global = e->encoder->first ? il % period == 0 : (il + 1) % period == 0;
    return global ? e->mask : e->windowed_mask;
}

/* Mean and variance, then weight and bias, where the layer lies. */
static struct mt_node *first_norm(struct mt_build *build, struct mt_node *x)
{
    size_t own = build->n_layers;
    x = mt_op_like(build->graph, x);
    if (build->pins_norms)
        x->backend = (int8_t)mt_build_backend(build, 0);
    x = mt_op_map(build->graph, x,
                  mt_build_weight(build, own, MT_SLOT_TOKEN_EMBEDDING_NORM, x->ne[0], 1, 1));
    return mt_build_biased(build, x, own, MT_SLOT_TOKEN_EMBEDDING_NORM_B);
}

static struct mt_node *embedded(const struct encoding *e)
{
    struct mt_build *build = e->build;
    struct mt_graph *g = build->graph;
    unsigned traits = e->encoder->kind == GEMMA ? MT_BUILD_SCALES_TOKENS : 0;
    struct mt_node *places = mt_build_maybe(build, build->n_layers, MT_SLOT_POSITION_EMBEDDING);
    if (places) {
        places = mt_op_get_rows(g, places, build->positions);
        if (build->newer & MT_NEWER_PADDED)
            mt_graph_expand(g, places);
    }
    struct mt_node *x = mt_build_embedding(build, traits);
    struct mt_node *types = mt_build_maybe(build, build->n_layers, MT_SLOT_TOKEN_TYPES);
    if (types)
        x = mt_op_map(g, x, mt_op_view(g, types, (uint64_t[4]){x->ne[0], 1, 1, 1}, types->nb));
    if (places)
        x = mt_op_map(g, places, x);
    return e->encoder->kind == GEMMA ? x : first_norm(build, x);
}

/* Heads of a layer, told by its tensors: nothing is cached, so the description has none. */
static struct mt_build_qkv heads_of_batch(const struct encoding *e, struct mt_node *x, size_t il)
{
    struct mt_build *build = e->build;
    struct mt_graph *g = build->graph;
    uint64_t heads = build->d->layers[il].heads ? build->d->layers[il].heads : 1;
    const struct mt_build_weight *norm = &build->layers[il].weights[MT_SLOT_ATTN_K_NORM];
    const struct mt_build_weight *keys = &build->layers[il].weights[MT_SLOT_ATTN_K];
    uint64_t size = norm->present && norm->ne[0] ? norm->ne[0] : x->ne[0] / heads;
    uint64_t width = size * heads;
    uint64_t kv = keys->present && size && keys->ne[1] >= size ? keys->ne[1] / size : heads;
    struct mt_build_qkv qkv;
    if (mt_build_has(build, il, MT_SLOT_ATTN_QKV)) {
        struct mt_node *all = mt_build_project(build, x, il, MT_SLOT_ATTN_QKV, 3 * width);
        all = mt_build_biased(build, all, il, MT_SLOT_ATTN_QKV_B);
        qkv.q = mt_op_heads(g, all, size, heads, size * 4);
        qkv.k = mt_op_heads(g, all, size, heads, size * 4);
        qkv.v = mt_op_heads(g, all, size, heads, size * 4);
        return qkv;
    }
    qkv.q = mt_build_project(build, x, il, MT_SLOT_ATTN_Q, width);
    qkv.q = mt_build_biased(build, qkv.q, il, MT_SLOT_ATTN_Q_B);
    qkv.k = mt_build_project(build, x, il, MT_SLOT_ATTN_K, kv * size);
    qkv.k = mt_build_biased(build, qkv.k, il, MT_SLOT_ATTN_K_BIAS);
    qkv.v = mt_build_project(build, x, il, MT_SLOT_ATTN_V, kv * size);
    qkv.v = mt_build_biased(build, qkv.v, il, MT_SLOT_ATTN_V_BIAS);
    qkv.q = mt_op_reshape(g, qkv.q, size, heads, x->ne[1], 1);
    qkv.k = mt_op_reshape(g, qkv.k, size, kv, x->ne[1], 1);
    qkv.v = mt_op_reshape(g, qkv.v, size, kv, x->ne[1], 1);
    return qkv;
}

static struct mt_node *attended(const struct encoding *e, struct mt_node *x, size_t il)
{
    struct mt_build *build = e->build;
    struct mt_graph *g = build->graph;
    build->graph->part = MT_PART_ATTENTION;
    struct mt_build_qkv qkv = heads_of_batch(e, x, il);
    if (e->encoder->kind == GEMMA) {
        qkv.q = mt_build_norm(build, qkv.q, il, MT_SLOT_ATTN_Q_NORM, 0);
        qkv.k = mt_build_norm(build, qkv.k, il, MT_SLOT_ATTN_K_NORM, 0);
    }
    if (e->encoder->kind != BERT) {
        qkv.q = mt_op_rope(g, qkv.q, build->positions, NULL);
        qkv.k = mt_op_rope(g, qkv.k, build->positions, NULL);
    }
    if (e->encoder->kind == GEMMA)
        qkv.q = mt_op_map(g, qkv.q, NULL);
    struct mt_node *y = mt_build_attend_batch(build, &qkv, il, mask_for(e, il));
    y = mt_build_project(build, y, il, MT_SLOT_ATTN_OUT, x->ne[0]);
    return mt_build_biased(build, y, il, MT_SLOT_ATTN_OUT_B);
}

static struct mt_node *fed_forward(const struct encoding *e, struct mt_node *x, size_t il)
{
    return mt_build_ffn(e->build, x, il, e->encoder->kind == MODERN ? MT_BUILD_HALVES : 0);
}

static void pick_rows(const struct encoding *e, size_t il, struct mt_node **x, struct mt_node **in)
{
    struct mt_build *build = e->build;
    if (il != build->n_layers - 1)
        return;
    *x = mt_op_get_rows(build->graph, *x, build->output_rows);
    *in = mt_op_get_rows(build->graph, *in, build->output_rows);
}

/* Norms behind the sums. */
static struct mt_node *bert_layer(const struct encoding *e, struct mt_node *in, size_t il)
{
    struct mt_build *build = e->build;
    struct mt_graph *g = build->graph;
    struct mt_node *x = attended(e, in, il);
    pick_rows(e, il, &x, &in);
    x = mt_build_norm(build, mt_op_map(g, x, in), il, MT_SLOT_ATTN_OUT_NORM, MT_BUILD_LAYER_NORM);
    x = mt_op_map(g, fed_forward(e, x, il), x);
    return mt_build_norm(build, x, il, MT_SLOT_LAYER_OUT_NORM, MT_BUILD_LAYER_NORM);
}

static struct mt_node *modern_layer(const struct encoding *e, struct mt_node *in, size_t il)
{
    struct mt_build *build = e->build;
    struct mt_node *x = in;
    if (mt_build_has(build, il, MT_SLOT_ATTN_NORM))
        x = mt_build_norm(build, in, il, MT_SLOT_ATTN_NORM, MT_BUILD_LAYER_NORM);
    x = attended(e, x, il);
    pick_rows(e, il, &x, &in);
    in = mt_op_map(build->graph, x, in);
    x = mt_build_norm(build, in, il, MT_SLOT_FFN_NORM, MT_BUILD_LAYER_NORM);
    return mt_op_map(build->graph, fed_forward(e, x, il), in);
}

static struct mt_node *gemma_layer(const struct encoding *e, struct mt_node *in, size_t il)
{
    struct mt_build *build = e->build;
    struct mt_node *x = mt_build_norm(build, in, il, MT_SLOT_ATTN_NORM, 0);
    x = attended(e, x, il);
    pick_rows(e, il, &x, &in);
    x = mt_build_norm(build, x, il, MT_SLOT_ATTN_POST_NORM, 0);
    in = mt_op_map(build->graph, x, in);
    x = fed_forward(e, mt_build_norm(build, in, il, MT_SLOT_FFN_NORM, 0), il);
    x = mt_build_norm_unpinned(build, x, il, MT_SLOT_FFN_POST_NORM);
    return mt_op_map(build->graph, x, in);
}

static const struct encoder *encoder_of(const struct mt_build *build)
{
    int is_there = build->arch != MT_ARCH_UNKNOWN && encoders[build->arch].is_there;
    return is_there ? &encoders[build->arch] : NULL;
}

static void expand(const struct encoding *e)
{
    struct mt_build *build = e->build;
    enum kind kind = e->encoder->kind;
    struct mt_node *x = embedded(e);
    for (size_t i = 0; i < build->n_layers; i++) {
        if (kind == BERT || kind == NOMIC)
            x = bert_layer(e, x, i);
        else
            x = kind == GEMMA ? gemma_layer(e, x, i) : modern_layer(e, x, i);
    }
    build->graph->part = MT_PART_OUTPUT;
    build->layers[build->n_layers].weights[MT_SLOT_OUTPUT_NORM].place =
        (int8_t)build->plan->device_of[build->plan->n_layers];
    if (kind == GEMMA || kind == MODERN)
        x = mt_build_norm(build, x, build->n_layers, MT_SLOT_OUTPUT_NORM,
                          kind == MODERN ? MT_BUILD_LAYER_NORM : 0);
    x->flags |= MT_NODE_OUTPUT;
    mt_graph_expand(build->graph, x);
}

int mt_build_encoder(struct mt_build *build)
{
    struct encoding e = {.build = build, .encoder = encoder_of(build)};
    if (!e.encoder || build->d->format != MT_MODEL_GGUF)
        return 0;
    for (size_t i = 0; i < build->n_layers; i++)
        if (!build->d->layers[i].heads || build->d->embedding_length % build->d->layers[i].heads)
            return 0;
    mt_build_positions(build);
    mt_build_output_rows(build);
    e.mask = mask_input(build);
    if (e.encoder->period && build->d->sliding_window)
        e.windowed_mask = mask_input(build);
    expand(&e);
    return 1;
}
