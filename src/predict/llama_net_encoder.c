/* SPDX-License-Identifier: MIT */
/* The graphs of encoders: the tokens of a batch attend to each other, nothing is kept, and what
 * comes out is the hidden state. */
#include <string.h>

#include "predict/llama_net.h"

enum kind { BERT, NOMIC, GEMMA, MODERN };

struct encoder {
    const char *name;
    enum kind kind;
    unsigned period; /* each period-th layer attends to all; 0: all do */
    int first;       /* the first of the period, not the last */
};

static const struct encoder encoders[] = {
    {"bert", BERT, 0, 0},
    {"nomic-bert", NOMIC, 0, 0},
    {"gemma-embedding", GEMMA, 6, 0},
    {"modern-bert", MODERN, 3, 1},
};

struct encoding {
    struct mt_net *net;
    const struct encoder *encoder;
    struct mt_node *mask;
    struct mt_node *windowed_mask;
};

static struct mt_node *mask_input(struct mt_net *net)
{
    return mt_net_mask(net, (uint64_t[4]){mt_net_keys_of_batch(net), net->tokens, 1, 1});
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
static struct mt_node *first_norm(struct mt_net *net, struct mt_node *x)
{
    size_t own = net->n_layers;
    x = mt_op_like(net->graph, x);
    if (net->pins_norms)
        x->backend = (int8_t)mt_net_backend(net, 0);
    x = mt_op_map(net->graph, x,
                  mt_net_weight(net, own, MT_SLOT_TOKEN_EMBEDDING_NORM, x->ne[0], 1, 1));
    return mt_net_biased(net, x, own, MT_SLOT_TOKEN_EMBEDDING_NORM_B);
}

static struct mt_node *embedded(const struct encoding *e)
{
    struct mt_net *net = e->net;
    struct mt_graph *g = net->graph;
    unsigned traits = e->encoder->kind == GEMMA ? MT_NET_SCALES_TOKENS : 0;
    struct mt_node *places = mt_net_maybe(net, net->n_layers, MT_SLOT_POSITION_EMBEDDING);
    if (places) {
        places = mt_op_get_rows(g, places, net->positions);
        if (net->newer & MT_NEWER_PADDED)
            mt_graph_expand(g, places);
    }
    struct mt_node *x = mt_net_embedding(net, traits);
    struct mt_node *types = mt_net_maybe(net, net->n_layers, MT_SLOT_TOKEN_TYPES);
    if (types)
        x = mt_op_map(g, x, mt_op_view(g, types, (uint64_t[4]){x->ne[0], 1, 1, 1}, types->nb));
    if (places)
        x = mt_op_map(g, places, x);
    return e->encoder->kind == GEMMA ? x : first_norm(net, x);
}

/* Heads of a layer, told by its tensors: nothing is cached, so the description has none. */
static struct mt_net_qkv heads_of_batch(const struct encoding *e, struct mt_node *x, size_t il)
{
    struct mt_net *net = e->net;
    struct mt_graph *g = net->graph;
    uint64_t heads = net->d->layers[il].heads ? net->d->layers[il].heads : 1;
    const struct mt_net_weight *norm = &net->layers[il].weights[MT_SLOT_ATTN_K_NORM];
    const struct mt_net_weight *keys = &net->layers[il].weights[MT_SLOT_ATTN_K];
    uint64_t size = norm->present && norm->ne[0] ? norm->ne[0] : x->ne[0] / heads;
    uint64_t width = size * heads;
    uint64_t kv = keys->present && size && keys->ne[1] >= size ? keys->ne[1] / size : heads;
    struct mt_net_qkv qkv;
    if (mt_net_has(net, il, MT_SLOT_ATTN_QKV)) {
        struct mt_node *all = mt_net_project(net, x, il, MT_SLOT_ATTN_QKV, 3 * width);
        all = mt_net_biased(net, all, il, MT_SLOT_ATTN_QKV_B);
        qkv.q = mt_op_heads(g, all, size, heads, size * 4);
        qkv.k = mt_op_heads(g, all, size, heads, size * 4);
        qkv.v = mt_op_heads(g, all, size, heads, size * 4);
        return qkv;
    }
    qkv.q = mt_net_project(net, x, il, MT_SLOT_ATTN_Q, width);
    qkv.q = mt_net_biased(net, qkv.q, il, MT_SLOT_ATTN_Q_B);
    qkv.k = mt_net_project(net, x, il, MT_SLOT_ATTN_K, kv * size);
    qkv.k = mt_net_biased(net, qkv.k, il, MT_SLOT_ATTN_K_BIAS);
    qkv.v = mt_net_project(net, x, il, MT_SLOT_ATTN_V, kv * size);
    qkv.v = mt_net_biased(net, qkv.v, il, MT_SLOT_ATTN_V_BIAS);
    qkv.q = mt_op_reshape(g, qkv.q, size, heads, x->ne[1], 1);
    qkv.k = mt_op_reshape(g, qkv.k, size, kv, x->ne[1], 1);
    qkv.v = mt_op_reshape(g, qkv.v, size, kv, x->ne[1], 1);
    return qkv;
}

static struct mt_node *attended(const struct encoding *e, struct mt_node *x, size_t il)
{
    struct mt_net *net = e->net;
    struct mt_graph *g = net->graph;
    net->graph->part = MT_PART_ATTENTION;
    struct mt_net_qkv qkv = heads_of_batch(e, x, il);
    if (e->encoder->kind == GEMMA) {
        qkv.q = mt_net_norm(net, qkv.q, il, MT_SLOT_ATTN_Q_NORM, 0);
        qkv.k = mt_net_norm(net, qkv.k, il, MT_SLOT_ATTN_K_NORM, 0);
    }
    if (e->encoder->kind != BERT) {
        qkv.q = mt_op_rope(g, qkv.q, net->positions, NULL);
        qkv.k = mt_op_rope(g, qkv.k, net->positions, NULL);
    }
    if (e->encoder->kind == GEMMA)
        qkv.q = mt_op_map(g, qkv.q, NULL);
    struct mt_node *y = mt_net_attend_batch(net, &qkv, il, mask_for(e, il));
    y = mt_net_project(net, y, il, MT_SLOT_ATTN_OUT, x->ne[0]);
    return mt_net_biased(net, y, il, MT_SLOT_ATTN_OUT_B);
}

static struct mt_node *fed_forward(const struct encoding *e, struct mt_node *x, size_t il)
{
    return mt_net_ffn(e->net, x, il, e->encoder->kind == MODERN ? MT_NET_HALVES : 0);
}

static void pick_rows(const struct encoding *e, size_t il, struct mt_node **x, struct mt_node **in)
{
    struct mt_net *net = e->net;
    if (il != net->n_layers - 1)
        return;
    *x = mt_op_get_rows(net->graph, *x, net->output_rows);
    *in = mt_op_get_rows(net->graph, *in, net->output_rows);
}

/* Norms behind the sums. */
static struct mt_node *bert_layer(const struct encoding *e, struct mt_node *in, size_t il)
{
    struct mt_net *net = e->net;
    struct mt_graph *g = net->graph;
    struct mt_node *x = attended(e, in, il);
    pick_rows(e, il, &x, &in);
    x = mt_net_norm(net, mt_op_map(g, x, in), il, MT_SLOT_ATTN_OUT_NORM, MT_NET_LAYER_NORM);
    x = mt_op_map(g, fed_forward(e, x, il), x);
    return mt_net_norm(net, x, il, MT_SLOT_LAYER_OUT_NORM, MT_NET_LAYER_NORM);
}

static struct mt_node *modern_layer(const struct encoding *e, struct mt_node *in, size_t il)
{
    struct mt_net *net = e->net;
    struct mt_node *x = in;
    if (mt_net_has(net, il, MT_SLOT_ATTN_NORM))
        x = mt_net_norm(net, in, il, MT_SLOT_ATTN_NORM, MT_NET_LAYER_NORM);
    x = attended(e, x, il);
    pick_rows(e, il, &x, &in);
    in = mt_op_map(net->graph, x, in);
    x = mt_net_norm(net, in, il, MT_SLOT_FFN_NORM, MT_NET_LAYER_NORM);
    return mt_op_map(net->graph, fed_forward(e, x, il), in);
}

static struct mt_node *gemma_layer(const struct encoding *e, struct mt_node *in, size_t il)
{
    struct mt_net *net = e->net;
    struct mt_node *x = mt_net_norm(net, in, il, MT_SLOT_ATTN_NORM, 0);
    x = attended(e, x, il);
    pick_rows(e, il, &x, &in);
    x = mt_net_norm(net, x, il, MT_SLOT_ATTN_POST_NORM, 0);
    in = mt_op_map(net->graph, x, in);
    x = fed_forward(e, mt_net_norm(net, in, il, MT_SLOT_FFN_NORM, 0), il);
    x = mt_net_norm_unpinned(net, x, il, MT_SLOT_FFN_POST_NORM);
    return mt_op_map(net->graph, x, in);
}

static const struct encoder *encoder_of(const struct mt_net *net)
{
    for (size_t i = 0; net->d->architecture && i < sizeof encoders / sizeof *encoders; i++)
        if (strcmp(encoders[i].name, net->d->architecture) == 0)
            return &encoders[i];
    return NULL;
}

static void build(const struct encoding *e)
{
    struct mt_net *net = e->net;
    enum kind kind = e->encoder->kind;
    struct mt_node *x = embedded(e);
    for (size_t i = 0; i < net->n_layers; i++) {
        if (kind == BERT || kind == NOMIC)
            x = bert_layer(e, x, i);
        else
            x = kind == GEMMA ? gemma_layer(e, x, i) : modern_layer(e, x, i);
    }
    net->graph->part = MT_PART_OUTPUT;
    net->layers[net->n_layers].weights[MT_SLOT_OUTPUT_NORM].place =
        (int8_t)net->plan->device_of[net->plan->n_layers];
    if (kind == GEMMA || kind == MODERN)
        x = mt_net_norm(net, x, net->n_layers, MT_SLOT_OUTPUT_NORM,
                        kind == MODERN ? MT_NET_LAYER_NORM : 0);
    x->flags |= MT_NODE_OUTPUT;
    mt_graph_expand(net->graph, x);
}

int mt_net_build_encoder(struct mt_net *net)
{
    struct encoding e = {.net = net, .encoder = encoder_of(net)};
    if (!e.encoder || net->d->format != MT_MODEL_GGUF)
        return 0;
    for (size_t i = 0; i < net->n_layers; i++)
        if (!net->d->layers[i].heads || net->d->embedding_length % net->d->layers[i].heads)
            return 0;
    mt_net_positions(net);
    mt_net_output_rows(net);
    e.mask = mask_input(net);
    if (e.encoder->period && net->d->sliding_window)
        e.windowed_mask = mask_input(net);
    build(&e);
    return 1;
}
