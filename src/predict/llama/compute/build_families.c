/* SPDX-License-Identifier: MIT */
/* Which parts the graph of each family of llama.cpp is made of. */
#include <string.h>

#include "build.h"
#include "predict/llama/internal.h"

struct family {
    int is_written_down;
    unsigned traits;
    enum mt_build_knowledge knowledge;
};

#define GEMMA (MT_BUILD_SCALES_TOKENS | MT_BUILD_POST_NORMS)
#define GRANITE                                                                                    \
    (MT_BUILD_SCALES_EMBEDDING | MT_BUILD_SCALES_RESIDUAL | MT_BUILD_SCALES_LOGITS |               \
     MT_BUILD_NORMS_WEIGHTS)
#define DELTA                                                                                      \
    (MT_BUILD_NORMS_QK | MT_BUILD_NORM_AFTER | MT_BUILD_ROWS_LATE | MT_BUILD_ROWS_AFTER_NORM |     \
     MT_BUILD_NORMS_WEIGHTS)
#define LFM                                                                                        \
    (MT_BUILD_NORMS_QK | MT_BUILD_EMBEDDING_NORM | MT_BUILD_RESIDUAL_FIRST |                       \
     MT_BUILD_ADDS_RESIDUAL_FIRST)
#define NEMOTRON                                                                                   \
    (MT_BUILD_NO_ROPE | MT_BUILD_RELU_SQUARE | MT_BUILD_ONE_PART | MT_BUILD_ROWS_LATE |            \
     MT_BUILD_ROWS_AFTER_NORM)

static const struct family families[MT_ARCH_UNKNOWN] = {
#define GRAPH(id, traits, knowledge) [MT_ARCH_##id] = {1, traits, knowledge},
#include "model/families.def"
};

/* What the tensors of a layer tell about a family that has no line above. */
static unsigned traits_seen(const struct mt_build *build)
{
    size_t il = build->n_layers - 1;
    const struct mt_build_weight *up = &build->layers[il].weights[MT_SLOT_FFN_UP];
    unsigned traits = MT_BUILD_NORMS_WEIGHTS;
    int ffn_norm = mt_build_has(build, il, MT_SLOT_FFN_NORM);
    int post_norm = mt_build_has(build, il, MT_SLOT_ATTN_POST_NORM);
    if (post_norm && mt_build_has(build, il, MT_SLOT_FFN_POST_NORM))
        traits |= MT_BUILD_POST_NORMS;
    else if (post_norm && !ffn_norm)
        traits |= MT_BUILD_NORM_AFTER;
    else if (!ffn_norm && build->d->format == MT_MODEL_GGUF)
        traits |= MT_BUILD_PARALLEL;
    if (mt_build_has(build, il, MT_SLOT_ATTN_NORM_B))
        traits |= MT_BUILD_LAYER_NORM;
    if (up->present && up->ne[1] == 2 * build->d->layers[il].ff_length)
        traits |= MT_BUILD_HALVES;
    return traits;
}

static struct family family_of(const struct mt_build *build)
{
    if (build->arch != MT_ARCH_UNKNOWN && families[build->arch].is_written_down)
        return families[build->arch];
    /* DeepSeek V4 compresses what it keeps, by a graph like no other. */
    int likely = build->d->family_known && !build->d->is_embedder &&
                 build->arch != MT_ARCH_DEEPSEEK4 && build->d->architecture;
    return (struct family){0, traits_seen(build), likely ? MT_BUILD_LIKELY : MT_BUILD_GUESSED};
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
static struct mt_node *stand_in(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    uint64_t embedding = x->ne[0];
    uint64_t width = 2 * (build->d->inner_size > embedding ? build->d->inner_size : embedding);
    struct mt_node *wide = mt_build_weight(build, il, MT_SLOT_SSM_IN, embedding, width, 1);
    struct mt_node *a = mt_op_mul_mat(g, wide, x);
    struct mt_node *b = mt_op_mul_mat(g, wide, x);
    x = mt_op_glu(g, a, b);
    return mt_op_mul_mat(g, mt_build_weight(build, il, MT_SLOT_SSM_OUT, x->ne[0], embedding, 1), x);
}

static struct mt_node *recurrent(struct mt_build *build, struct mt_node *x, size_t il)
{
    build->graph->part = MT_PART_STATE;
    if (!has_state(build->d, build->d->layers[il].recurrence))
        return x;
    switch (build->d->layers[il].recurrence) {
    case MT_RECURRENCE_DELTA_NET:
        return mt_build_delta_net(build, x, il);
    case MT_RECURRENCE_SHORT_CONVOLUTION:
        return mt_build_short_convolution(build, x, il);
    case MT_RECURRENCE_MAMBA2:
        return mt_build_mamba2(build, x, il);
    case MT_RECURRENCE_MAMBA:
        return mt_build_mamba(build, x, il);
    case MT_RECURRENCE_KIMI_DELTA:
        return mt_build_kimi_delta(build, x, il);
    default:
        return stand_in(build, x, il);
    }
}

static int is_written_down(const struct mt_build *build)
{
    for (size_t i = 0; i < build->n_layers; i++)
        switch (build->d->layers[i].recurrence) {
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

static struct mt_node *attention(struct mt_build *build, struct mt_node *x, size_t il,
                                 unsigned traits)
{
    const struct mt_model_layer *layer = &build->d->layers[il];
    build->graph->part = MT_PART_ATTENTION;
    if (layer->attention == MT_ATTENTION_NONE || !layer->heads || !layer->kv_heads ||
        !layer->key_size)
        return x;
    if (layer->attention == MT_ATTENTION_LATENT)
        return mt_build_latent_attention(build, x, il, traits);
    if (mt_llama_is_latent(build->d, layer) && mt_build_has(build, il, MT_SLOT_ATTN_KV_LORA_B))
        return mt_build_latent_in_heads(build, x, il, traits);
    for (size_t i = 0; i < build->n_layers; i++)
        if (build->d->layers[i].recurrence == MT_RECURRENCE_DELTA_NET)
            return mt_build_gated_attention(build, x, il);
    return mt_build_attention(build, x, il, traits);
}

/* What the layer makes of its normed input: attention, a recurrence, or the sum of both. */
static struct mt_node *mixed(struct mt_build *build, struct mt_node **residual, struct mt_node *x,
                             size_t il, unsigned traits)
{
    const struct mt_model_layer *layer = &build->d->layers[il];
    if (layer->recurrence == MT_RECURRENCE_NONE)
        return attention(build, x, il, traits);
    if (layer->attention == MT_ATTENTION_NONE)
        return recurrent(build, x, il);
    struct mt_node *attended = attention(build, x, il, traits);
    x = mt_build_norm(build, *residual, il, MT_SLOT_ATTN_NORM, traits);
    struct mt_node *other = recurrent(build, x, il);
    return mt_op_map(build->graph, attended, other);
}

static int picks_rows(const struct mt_build *build, size_t il, unsigned traits)
{
    return il == build->n_layers - 1 && (!build->late_rows || !(traits & MT_BUILD_ROWS_LATE));
}

static struct mt_node *rows(struct mt_build *build, struct mt_node *x)
{
    return mt_op_get_rows(build->graph, x, build->output_rows);
}

static struct mt_node *added(struct mt_build *build, struct mt_node *x, struct mt_node *residual,
                             int residual_first)
{
    return residual_first ? mt_op_map(build->graph, residual, x)
                          : mt_op_map(build->graph, x, residual);
}

/* Some families have norms behind their parts only. */
static struct mt_node *normed(struct mt_build *build, struct mt_node *x, size_t il,
                              enum mt_slot slot, unsigned traits)
{
    if (traits & MT_BUILD_POST_NORMS && build->d->format == MT_MODEL_GGUF &&
        !mt_build_has(build, il, slot))
        return x;
    return mt_build_norm(build, x, il, slot, traits);
}

static int has_ffn(const struct mt_build *build, size_t il)
{
    const struct mt_model_layer *layer = &build->d->layers[il];
    return layer->ff_length || layer->experts_used;
}

static struct mt_node *parallel_layer(struct mt_build *build, struct mt_node *in, size_t il,
                                      unsigned traits)
{
    struct mt_node *x = mt_build_norm(build, in, il, MT_SLOT_ATTN_NORM, traits);
    struct mt_node *ffn_in = x;
    x = attention(build, x, il, traits);
    if (picks_rows(build, il, traits)) {
        x = rows(build, x);
        in = rows(build, in);
        ffn_in = rows(build, ffn_in);
    }
    struct mt_node *ffn = mt_build_ffn(build, ffn_in, il, traits);
    if (traits & MT_BUILD_ATTENTION_FIRST)
        return mt_op_map(build->graph, mt_op_map(build->graph, x, ffn), in);
    return mt_op_map(build->graph, mt_op_map(build->graph, ffn, in), x);
}

/* Feed-forward with its norms and residual. */
static struct mt_node *ffn_part(struct mt_build *build, struct mt_node *in, size_t il,
                                unsigned traits)
{
    struct mt_graph *g = build->graph;
    if (!has_ffn(build, il))
        return in;
    enum mt_slot norm = traits & MT_BUILD_NORM_AFTER ? MT_SLOT_ATTN_POST_NORM : MT_SLOT_FFN_NORM;
    struct mt_node *x = normed(build, in, il, norm, traits);
    x = mt_build_ffn(build, x, il, traits);
    if (traits & MT_BUILD_PINS_POST_NORMS)
        x = mt_build_norm(build, x, il, MT_SLOT_FFN_POST_NORM, traits);
    else if (traits & MT_BUILD_POST_NORMS)
        x = mt_build_norm_unpinned(build, x, il, MT_SLOT_FFN_POST_NORM);
    if (traits & MT_BUILD_SCALES_RESIDUAL)
        x = mt_op_map(g, x, NULL);
    return added(build, x, in, !!(traits & MT_BUILD_ADDS_RESIDUAL_FIRST));
}

static int is_feed_forward(const struct mt_build *build, size_t il)
{
    const struct mt_model_layer *layer = &build->d->layers[il];
    return layer->attention == MT_ATTENTION_NONE && layer->recurrence == MT_RECURRENCE_NONE;
}

static struct mt_node *feed_forward_layer(struct mt_build *build, struct mt_node *in, size_t il,
                                          unsigned traits)
{
    struct mt_node *x = mt_build_norm(build, in, il, MT_SLOT_ATTN_NORM, traits);
    x = mt_build_ffn(build, x, il, traits);
    if (picks_rows(build, il, traits)) {
        x = rows(build, x);
        in = rows(build, in);
    }
    return added(build, x, in, 0);
}

static struct mt_node *layer(struct mt_build *build, struct mt_node *in, size_t il, unsigned traits)
{
    struct mt_graph *g = build->graph;
    if (traits & MT_BUILD_PARALLEL)
        return parallel_layer(build, in, il, traits);
    if (traits & MT_BUILD_ONE_PART && is_feed_forward(build, il))
        return feed_forward_layer(build, in, il, traits);
    int delta = (build->traits & DELTA) == DELTA || build->arch == MT_ARCH_KIMI_LINEAR;
    int beside = build->d->layers[il].attention != MT_ATTENTION_NONE &&
                 build->d->layers[il].recurrence != MT_RECURRENCE_NONE;
    struct mt_node *residual = in;
    struct mt_node *x = normed(build, in, il, MT_SLOT_ATTN_NORM, traits);
    if (delta)
        mt_graph_expand(g, x);
    x = mixed(build, &residual, x, il, traits);
    if (beside) {
        /* Falcon-H1 adds the residual before it picks rows, of the sum alone. */
        residual = mt_op_map(g, x, residual);
        residual = picks_rows(build, il, traits) ? rows(build, residual) : residual;
        return ffn_part(build, residual, il, traits);
    }
    if (picks_rows(build, il, traits)) {
        x = rows(build, x);
        residual = rows(build, residual);
    }
    if (traits & MT_BUILD_POST_NORMS)
        x = mt_build_norm(build, x, il, MT_SLOT_ATTN_POST_NORM, traits);
    if (traits & MT_BUILD_SCALES_RESIDUAL)
        x = mt_op_map(g, x, NULL);
    int first = !!(traits & MT_BUILD_RESIDUAL_FIRST);
    return ffn_part(build, added(build, x, residual, first), il, traits);
}

static int any_layer(const struct mt_build *build, int recurrent_ones)
{
    for (size_t i = 0; i < build->n_layers; i++)
        if (recurrent_ones ? build->d->layers[i].recurrence != MT_RECURRENCE_NONE
                           : build->d->layers[i].attention != MT_ATTENTION_NONE)
            return 1;
    return 0;
}

/* The first layers get features of images beside the embeddings. */
static struct mt_node *with_features(struct mt_build *build, struct mt_node *x, size_t il)
{
    if (il >= build->d->deepstack_layers)
        return x;
    struct mt_node *features =
        mt_op_view(build->graph, build->embedded, build->embedded->ne, build->embedded->nb);
    return mt_op_map(build->graph, x, features);
}

/* What the file says of itself stands above what its family usually is. */
static unsigned as_said(const struct mt_build *build, unsigned traits)
{
    if (!(traits & MT_BUILD_SCALES_WEIGHTS))
        return traits;
    if (build->d->norms_expert_weights == MT_SAID_NO)
        traits &= ~(unsigned)MT_BUILD_NORMS_WEIGHTS;
    if (build->d->scales_expert_weights == MT_SAID_NO)
        traits &= ~(unsigned)MT_BUILD_SCALES_WEIGHTS;
    return traits;
}

/* Whether the file has latent attention in its older form. */
static int keeps_latent_heads(const struct mt_build *build)
{
    for (size_t i = 0; i < build->n_layers; i++)
        if (build->d->layers[i].attention == MT_ATTENTION_GLOBAL &&
            mt_build_has(build, i, MT_SLOT_ATTN_KV_LORA_B))
            return 1;
    return 0;
}

enum mt_build_knowledge mt_build_graph(struct mt_build *build)
{
    const struct family family = family_of(build);
    unsigned traits = as_said(build, family.traits);
    build->traits = traits;
    if (build->d->is_embedder && mt_build_encoder(build))
        return build->knows_recent ? MT_BUILD_EXACT : MT_BUILD_LIKELY;
    if (!build->late_rows)
        traits &= ~(unsigned)(MT_BUILD_ROWS_LATE | MT_BUILD_ROWS_AFTER_NORM);
    mt_build_positions(build);
    mt_build_output_rows(build);
    if (any_layer(build, 0))
        mt_build_attention_inputs(build);
    if (any_layer(build, 1))
        mt_build_state_inputs(build);
    if (traits & MT_BUILD_TEMPERATURE || build->d->scales_queries_by_position)
        build->attention_scale =
            mt_op_input(build->graph, MT_TYPE_F32, (uint64_t[4]){1, 1, build->tokens, 1});
    if (build->arch == MT_ARCH_GEMMA4) {
        mt_build_gemma4(build, traits);
    } else if (build->arch == MT_ARCH_GEMMA3N) {
        mt_build_gemma3n(build, traits);
    } else {
        struct mt_node *x = mt_build_embedding(build, traits);
        for (size_t i = 0; i < build->n_layers; i++)
            x = with_features(build, layer(build, x, i, traits), i);
        mt_build_output(build, x, traits);
    }
    if (!is_written_down(build))
        return MT_BUILD_GUESSED;
    if (keeps_latent_heads(build) && (build->newer & MT_NEWER_STATES))
        return MT_BUILD_LIKELY; /* later builds have a tensor less, which one is not known */
    if (family.knowledge == MT_BUILD_RECENT)
        return build->knows_recent ? MT_BUILD_EXACT : MT_BUILD_LIKELY;
    return family.knowledge;
}
