/* SPDX-License-Identifier: MIT */
/* Which parts the graph of each family of llama.cpp is made of. */
#include <string.h>

#include "predict/llama_net.h"
#include "predict/llama_parts.h"

struct family {
    const char *name;
    unsigned traits;
    enum mt_net_knowledge knowledge;
};

#define GEMMA (MT_NET_SCALES_TOKENS | MT_NET_POST_NORMS)
#define GRANITE                                                                                    \
    (MT_NET_SCALES_EMBEDDING | MT_NET_SCALES_RESIDUAL | MT_NET_SCALES_LOGITS | MT_NET_NORMS_WEIGHTS)
#define DELTA                                                                                      \
    (MT_NET_NORMS_QK | MT_NET_NORM_AFTER | MT_NET_ROWS_LATE | MT_NET_ROWS_AFTER_NORM |             \
     MT_NET_NORMS_WEIGHTS)
#define LFM                                                                                        \
    (MT_NET_NORMS_QK | MT_NET_EMBEDDING_NORM | MT_NET_RESIDUAL_FIRST | MT_NET_ADDS_RESIDUAL_FIRST)
#define NEMOTRON                                                                                   \
    (MT_NET_NO_ROPE | MT_NET_RELU_SQUARE | MT_NET_ONE_PART | MT_NET_ROWS_LATE |                    \
     MT_NET_ROWS_AFTER_NORM)

static const struct family families[] = {
    {"llama", MT_NET_NORMS_WEIGHTS, MT_NET_EXACT},
    {"qwen2", 0, MT_NET_EXACT},
    {"qwen3", MT_NET_NORMS_QK, MT_NET_EXACT},
    {"qwen3moe", MT_NET_NORMS_WEIGHTS | MT_NET_NORMS_QK, MT_NET_EXACT},
    {"phi3", MT_NET_HALVES | MT_NET_SCALES_QUERIES | MT_NET_ADDS_RESIDUAL_FIRST, MT_NET_EXACT},
    {"glm4moe", MT_NET_NORM_AFTER | MT_NET_NORMS_WEIGHTS, MT_NET_EXACT},
    {"deepseek2", MT_NET_NORMS_WEIGHTS | MT_NET_SCALES_WEIGHTS, MT_NET_EXACT},
    {"gemma", MT_NET_SCALES_EMBEDDING | MT_NET_SCALES_QUERIES, MT_NET_RECENT},
    {"gemma2",
     MT_NET_SCALES_EMBEDDING | MT_NET_POST_NORMS | MT_NET_SCALES_QUERIES | MT_NET_CAPS_LOGITS,
     MT_NET_RECENT},
    {"gemma3", GEMMA | MT_NET_SCALES_QUERIES | MT_NET_NORMS_QK, MT_NET_EXACT},
    {"cohere2", MT_NET_PARALLEL | MT_NET_LAYER_NORM | MT_NET_ROPE_WINDOWED | MT_NET_SCALES_LOGITS,
     MT_NET_EXACT},
    {"gpt-oss", MT_NET_NORM_AFTER | MT_NET_SOFTMAX_LATE | MT_NET_ROWS_LATE, MT_NET_EXACT},
    {"llama4",
     MT_NET_ROPE_WINDOWED | MT_NET_TEMPERATURE | MT_NET_NORMS_QK_AFTER | MT_NET_WEIGHTS_FIRST,
     MT_NET_EXACT},
    {"gemma4",
     GEMMA | MT_NET_CAPS_LOGITS | MT_NET_ROWS_LATE | MT_NET_ROWS_AFTER_NORM | MT_NET_NORMS_WEIGHTS,
     MT_NET_EXACT},
    {"gemma3n", MT_NET_SCALES_TOKENS | MT_NET_CAPS_LOGITS, MT_NET_EXACT},
    {"mamba2", 0, MT_NET_EXACT},
    {"granite", GRANITE, MT_NET_EXACT},
    {"granitemoe", GRANITE, MT_NET_EXACT},
    {"granitehybrid", GRANITE | MT_NET_NO_ROPE, MT_NET_EXACT},
    {"falcon-h1", 0, MT_NET_EXACT},
    {"qwen35", DELTA, MT_NET_EXACT},
    {"qwen35moe", DELTA, MT_NET_EXACT},
    {"qwen3next", DELTA, MT_NET_EXACT},
    {"lfm2", LFM, MT_NET_EXACT},
    {"lfm2moe", LFM | MT_NET_NORMS_WEIGHTS, MT_NET_EXACT},
    {"mistral3", MT_NET_NORMS_WEIGHTS, MT_NET_RECENT},
    {"glm4", MT_NET_POST_NORMS | MT_NET_PINS_POST_NORMS | MT_NET_HALVES, MT_NET_RECENT},
    {"command-r", MT_NET_PARALLEL | MT_NET_LAYER_NORM | MT_NET_SCALES_LOGITS, MT_NET_RECENT},
    {"phi2", MT_NET_PARALLEL | MT_NET_LAYER_NORM | MT_NET_ATTENTION_FIRST | MT_NET_SCALES_QUERIES,
     MT_NET_RECENT},
    {"phimoe", MT_NET_SCALES_QUERIES | MT_NET_ADDS_RESIDUAL_FIRST | MT_NET_NORMS_WEIGHTS,
     MT_NET_RECENT},
    {"olmo2", MT_NET_POST_NORMS, MT_NET_RECENT},
    {"olmoe", 0, MT_NET_RECENT},
    {"qwen2moe", MT_NET_SHARED_BY_RATIO, MT_NET_RECENT},
    {"qwen2vl", 0, MT_NET_RECENT},
    {"qwen3vl", MT_NET_NORMS_QK, MT_NET_RECENT},
    {"qwen3vlmoe", MT_NET_NORMS_QK | MT_NET_NORMS_WEIGHTS, MT_NET_RECENT},
    {"bailingmoe2", MT_NET_NORMS_QK | MT_NET_NORMS_WEIGHTS | MT_NET_SCALES_WEIGHTS, MT_NET_RECENT},
    {"dots1", MT_NET_NORMS_QK | MT_NET_NORMS_WEIGHTS | MT_NET_SCALES_WEIGHTS, MT_NET_RECENT},
    {"minimax-m2", MT_NET_NORMS_WEIGHTS, MT_NET_RECENT},
    {"ernie4_5", 0, MT_NET_RECENT},
    {"ernie4_5-moe", MT_NET_NORMS_WEIGHTS, MT_NET_RECENT},
    {"hunyuan-dense", MT_NET_NORMS_QK_AFTER | MT_NET_NORMS_QK, MT_NET_RECENT},
    {"hunyuan-moe", MT_NET_NORMS_QK_AFTER | MT_NET_NORMS_QK | MT_NET_NORMS_WEIGHTS, MT_NET_RECENT},
    {"seed_oss", MT_NET_NORM_AFTER, MT_NET_RECENT},
    {"smollm3", MT_NET_ROPE_THREE_OF_FOUR, MT_NET_RECENT},
    {"exaone4", MT_NET_POST_NORMS | MT_NET_NORMS_QK | MT_NET_ROPE_WINDOWED, MT_NET_RECENT},
    {"starcoder2", MT_NET_LAYER_NORM, MT_NET_RECENT},
    {"arcee", MT_NET_RELU_SQUARE, MT_NET_RECENT},
    {"internlm2", 0, MT_NET_RECENT},
    {"deepseek", 0, MT_NET_RECENT},
    {"nemotron", MT_NET_LAYER_NORM | MT_NET_RELU_SQUARE, MT_NET_RECENT},
    {"exaone", 0, MT_NET_RECENT},
    {"exaone-moe",
     MT_NET_NORMS_QK | MT_NET_ROPE_WINDOWED | MT_NET_NORMS_WEIGHTS | MT_NET_SCALES_WEIGHTS,
     MT_NET_RECENT},
    {"minicpm", GRANITE, MT_NET_RECENT},
    {"mamba", 0, MT_NET_RECENT},
    {"jamba", MT_NET_NO_ROPE | MT_NET_RESIDUAL_FIRST | MT_NET_ADDS_RESIDUAL_FIRST, MT_NET_RECENT},
    {"kimi-linear", MT_NET_NO_ROPE | MT_NET_NORMS_WEIGHTS | MT_NET_SCALES_WEIGHTS, MT_NET_RECENT},
    {"deepseek32", MT_NET_NORMS_WEIGHTS | MT_NET_SCALES_WEIGHTS, MT_NET_RECENT},
    {"glm-dsa", MT_NET_NORMS_WEIGHTS | MT_NET_SCALES_WEIGHTS, MT_NET_RECENT},
    {"mistral4", MT_NET_NORMS_WEIGHTS | MT_NET_SCALES_WEIGHTS, MT_NET_RECENT},
    {"nemotron_h", NEMOTRON, MT_NET_RECENT},
    {"nemotron_h_moe", NEMOTRON | MT_NET_NORMS_WEIGHTS | MT_NET_SCALES_WEIGHTS, MT_NET_RECENT},
};

/* What the tensors of a layer tell about a family that has no line above. */
static unsigned traits_seen(const struct mt_net *net)
{
    size_t il = net->n_layers - 1;
    const struct mt_net_weight *up = &net->layers[il].weights[MT_SLOT_FFN_UP];
    unsigned traits = MT_NET_NORMS_WEIGHTS;
    int ffn_norm = mt_net_has(net, il, MT_SLOT_FFN_NORM);
    int post_norm = mt_net_has(net, il, MT_SLOT_ATTN_POST_NORM);
    if (post_norm && mt_net_has(net, il, MT_SLOT_FFN_POST_NORM))
        traits |= MT_NET_POST_NORMS;
    else if (post_norm && !ffn_norm)
        traits |= MT_NET_NORM_AFTER;
    else if (!ffn_norm && net->d->format == MT_MODEL_GGUF)
        traits |= MT_NET_PARALLEL;
    if (mt_net_has(net, il, MT_SLOT_ATTN_NORM_B))
        traits |= MT_NET_LAYER_NORM;
    if (up->present && up->ne[1] == 2 * net->d->layers[il].ff_length)
        traits |= MT_NET_HALVES;
    return traits;
}

static struct family family_of(const struct mt_net *net)
{
    const char *name = net->d->architecture;
    for (size_t i = 0; name && i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, name) == 0)
            return families[i];
    /* DeepSeek V4 compresses what it keeps, by a graph like no other. */
    int likely =
        name && net->d->family_known && !net->d->is_embedder && strcmp(name, "deepseek4") != 0;
    return (struct family){"", traits_seen(net), likely ? MT_NET_LIKELY : MT_NET_GUESSED};
}

static int is_named(const struct mt_net *net, const char *name)
{
    return net->d->architecture && strcmp(net->d->architecture, name) == 0;
}

/* Whether the model says what the layer's state is made of. */
static int has_state(const struct mt_model_description *d, enum mt_recurrence recurrence)
{
    if (recurrence == MT_RECURRENCE_SHORT_CONVOLUTION)
        return d->short_conv_cache > 0;
    if (recurrence == MT_RECURRENCE_MAMBA || recurrence == MT_RECURRENCE_KIMI_DELTA)
        return d->time_step_rank && d->state_size && d->conv_kernel && d->inner_size;
    return d->time_step_rank && d->group_count && d->state_size && d->conv_kernel &&
           d->inner_size >= d->time_step_rank && d->inner_size >= d->group_count;
}

/* In place of a recurrence that has no graph here: wide tensors beside each other, as most have. */
static struct mt_node *stand_in(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    uint64_t embedding = x->ne[0];
    uint64_t width = 2 * (net->d->inner_size > embedding ? net->d->inner_size : embedding);
    struct mt_node *wide = mt_net_weight(net, il, MT_SLOT_SSM_IN, embedding, width, 1);
    struct mt_node *a = mt_op_mul_mat(g, wide, x);
    struct mt_node *b = mt_op_mul_mat(g, wide, x);
    x = mt_op_glu(g, a, b);
    return mt_op_mul_mat(g, mt_net_weight(net, il, MT_SLOT_SSM_OUT, x->ne[0], embedding, 1), x);
}

static struct mt_node *recurrent(struct mt_net *net, struct mt_node *x, size_t il)
{
    net->graph->part = MT_PART_STATE;
    if (!has_state(net->d, net->d->layers[il].recurrence))
        return x;
    switch (net->d->layers[il].recurrence) {
    case MT_RECURRENCE_DELTA_NET:
        return mt_net_delta_net(net, x, il);
    case MT_RECURRENCE_SHORT_CONVOLUTION:
        return mt_net_short_convolution(net, x, il);
    case MT_RECURRENCE_MAMBA2:
        return mt_net_mamba2(net, x, il);
    case MT_RECURRENCE_MAMBA:
        return mt_net_mamba(net, x, il);
    case MT_RECURRENCE_KIMI_DELTA:
        return mt_net_kimi_delta(net, x, il);
    default:
        return stand_in(net, x, il);
    }
}

static int is_written_down(const struct mt_net *net)
{
    for (size_t i = 0; i < net->n_layers; i++)
        switch (net->d->layers[i].recurrence) {
        case MT_RECURRENCE_NONE:
        case MT_RECURRENCE_DELTA_NET:
        case MT_RECURRENCE_SHORT_CONVOLUTION:
        case MT_RECURRENCE_MAMBA2:
        case MT_RECURRENCE_MAMBA:
        case MT_RECURRENCE_KIMI_DELTA:
            continue;
        default:
            return 0;
        }
    return 1;
}

static struct mt_node *attention(struct mt_net *net, struct mt_node *x, size_t il, unsigned traits)
{
    const struct mt_model_layer *layer = &net->d->layers[il];
    net->graph->part = MT_PART_ATTENTION;
    if (layer->attention == MT_ATTENTION_NONE || !layer->heads || !layer->kv_heads ||
        !layer->key_size)
        return x;
    if (layer->attention == MT_ATTENTION_LATENT)
        return mt_net_latent_attention(net, x, il, traits);
    if (mt_llama_is_latent(net->d, layer) && mt_net_has(net, il, MT_SLOT_ATTN_KV_LORA_B))
        return mt_net_latent_in_heads(net, x, il, traits);
    for (size_t i = 0; i < net->n_layers; i++)
        if (net->d->layers[i].recurrence == MT_RECURRENCE_DELTA_NET)
            return mt_net_gated_attention(net, x, il);
    return mt_net_attention(net, x, il, traits);
}

/* What the layer makes of its normed input: attention, a recurrence, or the sum of both. */
static struct mt_node *mixed(struct mt_net *net, struct mt_node **residual, struct mt_node *x,
                             size_t il, unsigned traits)
{
    const struct mt_model_layer *layer = &net->d->layers[il];
    if (layer->recurrence == MT_RECURRENCE_NONE)
        return attention(net, x, il, traits);
    if (layer->attention == MT_ATTENTION_NONE)
        return recurrent(net, x, il);
    struct mt_node *attended = attention(net, x, il, traits);
    x = mt_net_norm(net, *residual, il, MT_SLOT_ATTN_NORM, traits);
    struct mt_node *other = recurrent(net, x, il);
    return mt_op_map(net->graph, attended, other);
}

static int picks_rows(const struct mt_net *net, size_t il, unsigned traits)
{
    return il == net->n_layers - 1 && (!net->late_rows || !(traits & MT_NET_ROWS_LATE));
}

static struct mt_node *rows(struct mt_net *net, struct mt_node *x)
{
    return mt_op_get_rows(net->graph, x, net->output_rows);
}

static struct mt_node *added(struct mt_net *net, struct mt_node *x, struct mt_node *residual,
                             int residual_first)
{
    return residual_first ? mt_op_map(net->graph, residual, x) : mt_op_map(net->graph, x, residual);
}

/* Some families have norms behind their parts only. */
static struct mt_node *normed(struct mt_net *net, struct mt_node *x, size_t il, enum mt_slot slot,
                              unsigned traits)
{
    if (traits & MT_NET_POST_NORMS && net->d->format == MT_MODEL_GGUF && !mt_net_has(net, il, slot))
        return x;
    return mt_net_norm(net, x, il, slot, traits);
}

static int has_ffn(const struct mt_net *net, size_t il)
{
    const struct mt_model_layer *layer = &net->d->layers[il];
    return layer->ff_length || layer->experts_used;
}

static struct mt_node *parallel_layer(struct mt_net *net, struct mt_node *in, size_t il,
                                      unsigned traits)
{
    struct mt_node *x = mt_net_norm(net, in, il, MT_SLOT_ATTN_NORM, traits);
    struct mt_node *ffn_in = x;
    x = attention(net, x, il, traits);
    if (picks_rows(net, il, traits)) {
        x = rows(net, x);
        in = rows(net, in);
        ffn_in = rows(net, ffn_in);
    }
    struct mt_node *ffn = mt_net_ffn(net, ffn_in, il, traits);
    if (traits & MT_NET_ATTENTION_FIRST)
        return mt_op_map(net->graph, mt_op_map(net->graph, x, ffn), in);
    return mt_op_map(net->graph, mt_op_map(net->graph, ffn, in), x);
}

/* Feed-forward with its norms and residual. */
static struct mt_node *ffn_part(struct mt_net *net, struct mt_node *in, size_t il, unsigned traits)
{
    struct mt_graph *g = net->graph;
    if (!has_ffn(net, il))
        return in;
    enum mt_slot norm = traits & MT_NET_NORM_AFTER ? MT_SLOT_ATTN_POST_NORM : MT_SLOT_FFN_NORM;
    struct mt_node *x = normed(net, in, il, norm, traits);
    x = mt_net_ffn(net, x, il, traits);
    if (traits & MT_NET_PINS_POST_NORMS)
        x = mt_net_norm(net, x, il, MT_SLOT_FFN_POST_NORM, traits);
    else if (traits & MT_NET_POST_NORMS)
        x = mt_net_norm_unpinned(net, x, il, MT_SLOT_FFN_POST_NORM);
    if (traits & MT_NET_SCALES_RESIDUAL)
        x = mt_op_map(g, x, NULL);
    return added(net, x, in, !!(traits & MT_NET_ADDS_RESIDUAL_FIRST));
}

static int is_feed_forward(const struct mt_net *net, size_t il)
{
    const struct mt_model_layer *layer = &net->d->layers[il];
    return layer->attention == MT_ATTENTION_NONE && layer->recurrence == MT_RECURRENCE_NONE;
}

static struct mt_node *feed_forward_layer(struct mt_net *net, struct mt_node *in, size_t il,
                                          unsigned traits)
{
    struct mt_node *x = mt_net_norm(net, in, il, MT_SLOT_ATTN_NORM, traits);
    x = mt_net_ffn(net, x, il, traits);
    if (picks_rows(net, il, traits)) {
        x = rows(net, x);
        in = rows(net, in);
    }
    return added(net, x, in, 0);
}

static struct mt_node *layer(struct mt_net *net, struct mt_node *in, size_t il, unsigned traits)
{
    struct mt_graph *g = net->graph;
    if (traits & MT_NET_PARALLEL)
        return parallel_layer(net, in, il, traits);
    if (traits & MT_NET_ONE_PART && is_feed_forward(net, il))
        return feed_forward_layer(net, in, il, traits);
    int delta = (net->traits & DELTA) == DELTA || is_named(net, "kimi-linear");
    int beside = net->d->layers[il].attention != MT_ATTENTION_NONE &&
                 net->d->layers[il].recurrence != MT_RECURRENCE_NONE;
    struct mt_node *residual = in;
    struct mt_node *x = normed(net, in, il, MT_SLOT_ATTN_NORM, traits);
    if (delta)
        mt_graph_expand(g, x);
    x = mixed(net, &residual, x, il, traits);
    if (beside) {
        /* Falcon-H1 adds the residual before it picks rows, of the sum alone. */
        residual = mt_op_map(g, x, residual);
        residual = picks_rows(net, il, traits) ? rows(net, residual) : residual;
        return ffn_part(net, residual, il, traits);
    }
    if (picks_rows(net, il, traits)) {
        x = rows(net, x);
        residual = rows(net, residual);
    }
    if (traits & MT_NET_POST_NORMS)
        x = mt_net_norm(net, x, il, MT_SLOT_ATTN_POST_NORM, traits);
    if (traits & MT_NET_SCALES_RESIDUAL)
        x = mt_op_map(g, x, NULL);
    int first = !!(traits & MT_NET_RESIDUAL_FIRST);
    return ffn_part(net, added(net, x, residual, first), il, traits);
}

static int any_layer(const struct mt_net *net, int recurrent_ones)
{
    for (size_t i = 0; i < net->n_layers; i++)
        if (recurrent_ones ? net->d->layers[i].recurrence != MT_RECURRENCE_NONE
                           : net->d->layers[i].attention != MT_ATTENTION_NONE)
            return 1;
    return 0;
}

/* The first layers get features of images beside the embeddings. */
static struct mt_node *with_features(struct mt_net *net, struct mt_node *x, size_t il)
{
    if (il >= net->d->deepstack_layers)
        return x;
    struct mt_node *features =
        mt_op_view(net->graph, net->embedded, net->embedded->ne, net->embedded->nb);
    return mt_op_map(net->graph, x, features);
}

/* What the file says of itself stands above what its family usually is. */
static unsigned as_said(const struct mt_net *net, unsigned traits)
{
    if (!(traits & MT_NET_SCALES_WEIGHTS))
        return traits;
    if (net->d->norms_expert_weights == MT_SAID_NO)
        traits &= ~(unsigned)MT_NET_NORMS_WEIGHTS;
    if (net->d->scales_expert_weights == MT_SAID_NO)
        traits &= ~(unsigned)MT_NET_SCALES_WEIGHTS;
    return traits;
}

/* Whether the file has latent attention in its older form. */
static int keeps_latent_heads(const struct mt_net *net)
{
    for (size_t i = 0; i < net->n_layers; i++)
        if (net->d->layers[i].attention == MT_ATTENTION_GLOBAL &&
            mt_net_has(net, i, MT_SLOT_ATTN_KV_LORA_B))
            return 1;
    return 0;
}

enum mt_net_knowledge mt_net_build(struct mt_net *net)
{
    const struct family family = family_of(net);
    unsigned traits = as_said(net, family.traits);
    net->traits = traits;
    if (net->d->is_embedder && mt_net_build_encoder(net))
        return net->knows_recent ? MT_NET_EXACT : MT_NET_LIKELY;
    if (!net->late_rows)
        traits &= ~(unsigned)(MT_NET_ROWS_LATE | MT_NET_ROWS_AFTER_NORM);
    mt_net_positions(net);
    mt_net_output_rows(net);
    if (any_layer(net, 0))
        mt_net_attention_inputs(net);
    if (any_layer(net, 1))
        mt_net_state_inputs(net);
    if (traits & MT_NET_TEMPERATURE || net->d->scales_queries_by_position)
        net->attention_scale =
            mt_op_input(net->graph, MT_TYPE_F32, (uint64_t[4]){1, 1, net->tokens, 1});
    if (is_named(net, "gemma4")) {
        mt_net_build_gemma4(net, traits);
    } else if (is_named(net, "gemma3n")) {
        mt_net_build_gemma3n(net, traits);
    } else {
        struct mt_node *x = mt_net_embedding(net, traits);
        for (size_t i = 0; i < net->n_layers; i++)
            x = with_features(net, layer(net, x, i, traits), i);
        mt_net_output(net, x, traits);
    }
    if (!is_written_down(net))
        return MT_NET_GUESSED;
    if (keeps_latent_heads(net) && (net->newer & MT_NEWER_STATES))
        return MT_NET_LIKELY; /* later builds have a tensor less, which one is not known */
    if (family.knowledge == MT_NET_RECENT)
        return net->knows_recent ? MT_NET_EXACT : MT_NET_LIKELY;
    return family.knowledge;
}
