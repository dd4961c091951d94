/* SPDX-License-Identifier: MIT */
/* The tensors of what mixes tokens: attention of all kinds, and recurrences. */
#include <stdio.h>

#include "build.h"

int mt_hf_attention_bias(const struct mt_hf_build *build)
{
    return mt_hf_trait(build, MT_HF_QKV_BIAS | MT_HF_ALL_BIAS) ||
           MT_HF_FIRST(build->config, MT_HF_attention_bias, MT_HF_use_qkv_bias, MT_HF_add_qkv_bias,
                       MT_HF_use_bias, MT_HF_bias) == 1;
}

int mt_hf_output_bias(const struct mt_hf_build *build)
{
    if (mt_hf_trait(build, MT_HF_ALL_BIAS))
        return 1;
    return !mt_hf_trait(build, MT_HF_NO_OUTPUT_BIAS | MT_HF_QKV_BIAS) &&
           MT_HF_FIRST(build->config, MT_HF_attention_bias, MT_HF_use_bias, MT_HF_bias) == 1;
}

/* A layer that reads another one's cache has no keys and values of its own. */
static void add_qk_norms(struct mt_hf_build *build, const struct mt_model_layer *layer,
                         int has_keys)
{
    int asked =
        mt_hf_number(build->config, MT_HF_use_qk_norm, 0) && !mt_hf_trait(build, MT_HF_CHUNKED);
    if (mt_hf_trait(build, MT_HF_QK_NORM) ||
        (asked && !mt_hf_trait(build, MT_HF_QK_NORM_WIDE) && build->config->family->norms > 1)) {
        mt_hf_vector(build, "self_attn.q_norm.weight", layer->key_size);
        if (has_keys)
            mt_hf_vector(build, "self_attn.k_norm.weight", layer->key_size);
    } else if (asked || mt_hf_trait(build, MT_HF_QK_NORM_WIDE)) {
        mt_hf_vector(build, "self_attn.q_norm.weight", layer->heads * layer->key_size);
        mt_hf_vector(build, "self_attn.k_norm.weight", layer->kv_heads * layer->key_size);
    }
}

static void add_attention(struct mt_hf_build *build, const struct mt_model_layer *layer,
                          uint64_t index)
{
    uint64_t hidden = build->description->embedding_length;
    int bias = mt_hf_attention_bias(build);
    /* Gemma 3n has the matrices all the same. */
    int has_keys = layer->cache_layer == index || mt_hf_trait(build, MT_HF_GEMMA3N);
    int has_values =
        has_keys && !(mt_hf_trait(build, MT_HF_GEMMA4) && layer->attention == MT_ATTENTION_GLOBAL &&
                      mt_hf_number(build->config, MT_HF_attention_k_eq_v, 0));
    uint64_t queries = layer->heads * layer->key_size;
    uint64_t gate = mt_hf_trait(build, MT_HF_GATED_QUERY) ? 2 : 1;
    mt_hf_linear(build, "self_attn.q_proj", gate * queries, hidden, bias);
    if (has_keys)
        mt_hf_linear(build, "self_attn.k_proj", layer->kv_heads * layer->key_size, hidden, bias);
    if (has_values)
        mt_hf_linear(build, "self_attn.v_proj", layer->kv_heads * layer->value_size, hidden, bias);
    mt_hf_linear(build, "self_attn.o_proj", hidden, layer->heads * layer->value_size,
                 mt_hf_output_bias(build));
    add_qk_norms(build, layer, has_keys);
    /* MiMo has sinks in layers with a window only. */
    if (mt_hf_trait(build, MT_HF_SINKS) &&
        (build->config->family->period || layer->attention == MT_ATTENTION_SLIDING))
        mt_hf_vector(build, "self_attn.sinks", layer->heads);
}

/* GLM-5 has an indexer in some layers, which the others take their choice from. */
int mt_hf_has_indexer(const struct mt_hf_build *build, uint64_t index)
{
    const struct mt_hf_config *config = build->config;
    uint64_t frequency = mt_hf_number(config, MT_HF_index_topk_freq, 1);
    uint64_t offset = mt_hf_number(config, MT_HF_index_skip_topk_offset, 2);
    if (!build->description->indexer_heads)
        return 0;
    return frequency <= 1 || index + 1 <= offset || (index + 1 - offset) % frequency == 0;
}

static void add_indexer(struct mt_hf_build *build)
{
    const struct mt_model_description *d = build->description;
    mt_hf_linear(build, "self_attn.indexer.wq_b", d->indexer_heads * d->indexer_head_size,
                 d->q_lora_rank, 0);
    mt_hf_linear(build, "self_attn.indexer.wk", d->indexer_head_size, d->embedding_length, 0);
    mt_hf_vector(build, "self_attn.indexer.k_norm.weight", d->indexer_head_size);
    mt_hf_vector(build, "self_attn.indexer.k_norm.bias", d->indexer_head_size);
    mt_hf_matrix(build, "self_attn.indexer.weights_proj.weight", d->indexer_heads,
                 d->embedding_length);
}

static void add_latent(struct mt_hf_build *build, const struct mt_model_layer *layer,
                       uint64_t index)
{
    const struct mt_model_description *d = build->description;
    uint64_t head = d->qk_nope_head_size + d->qk_rope_head_size;
    int bias = mt_hf_attention_bias(build);
    if (d->q_lora_rank) {
        mt_hf_linear(build, "self_attn.q_a_proj", d->q_lora_rank, d->embedding_length, bias);
        mt_hf_vector(build, "self_attn.q_a_layernorm.weight", d->q_lora_rank);
        mt_hf_linear(build, "self_attn.q_b_proj", layer->heads * head, d->q_lora_rank, 0);
    } else {
        mt_hf_linear(build, "self_attn.q_proj", layer->heads * head, d->embedding_length, 0);
    }
    mt_hf_linear(build, "self_attn.kv_a_proj_with_mqa", d->kv_lora_rank + d->qk_rope_head_size,
                 d->embedding_length, bias);
    mt_hf_vector(build, "self_attn.kv_a_layernorm.weight", d->kv_lora_rank);
    mt_hf_linear(build, "self_attn.kv_b_proj",
                 layer->heads * (d->qk_nope_head_size + d->value_head_size), d->kv_lora_rank, 0);
    mt_hf_linear(build, "self_attn.o_proj", d->embedding_length, layer->heads * d->value_head_size,
                 bias);
    if (mt_hf_has_indexer(build, index))
        add_indexer(build);
}

static void convolution(struct mt_hf_build *build, const char *name, uint64_t channels, int bias)
{
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    mt_hf_matrix(build, text, channels, build->description->conv_kernel);
    snprintf(text, sizeof text, "%s.bias", name);
    if (bias)
        mt_hf_vector(build, text, channels);
}

static void add_mamba(struct mt_hf_build *build)
{
    const struct mt_model_description *d = build->description;
    uint64_t inner = d->inner_size;
    uint64_t rank = d->time_step_rank;
    int bias = MT_HF_FIRST(build->config, MT_HF_mamba_proj_bias, MT_HF_use_bias) == 1;
    mt_hf_linear(build, "mixer.in_proj", 2 * inner, d->embedding_length, bias);
    convolution(build, "mixer.conv1d", inner,
                !(MT_HF_FIRST(build->config, MT_HF_mamba_conv_bias) == 0 &&
                  mt_hf_number(build->config, MT_HF_mamba_conv_bias, 1) == 0));
    mt_hf_linear(build, "mixer.x_proj", rank + 2 * d->state_size, inner, 0);
    mt_hf_linear(build, "mixer.dt_proj", inner, rank, 1);
    mt_hf_matrix(build, "mixer.A_log", inner, d->state_size);
    mt_hf_vector(build, "mixer.D", inner);
    mt_hf_linear(build, "mixer.out_proj", d->embedding_length, inner, bias);
    if (!mt_hf_trait(build, MT_HF_MAMBA_NORMS))
        return;
    mt_hf_vector(build, "mixer.dt_layernorm.weight", rank);
    mt_hf_vector(build, "mixer.b_layernorm.weight", d->state_size);
    mt_hf_vector(build, "mixer.c_layernorm.weight", d->state_size);
}

static void add_mamba2(struct mt_hf_build *build)
{
    const struct mt_model_description *d = build->description;
    uint64_t states = 2 * d->group_count * d->state_size;
    int bias = MT_HF_FIRST(build->config, MT_HF_mamba_proj_bias, MT_HF_use_bias) == 1;
    mt_hf_linear(build, "mixer.in_proj", 2 * d->inner_size + states + d->time_step_rank,
                 d->embedding_length, bias);
    convolution(build, "mixer.conv1d", d->inner_size + states,
                mt_hf_number(build->config, MT_HF_mamba_conv_bias, 1) &&
                    mt_hf_number(build->config, MT_HF_use_conv_bias, 1));
    mt_hf_vector(build, "mixer.dt_bias", d->time_step_rank);
    mt_hf_vector(build, "mixer.A_log", d->time_step_rank);
    mt_hf_vector(build, "mixer.D", d->time_step_rank);
    if (!mt_hf_trait(build, MT_HF_BOTH) || mt_hf_number(build->config, MT_HF_mamba_rms_norm, 0))
        mt_hf_vector(build, "mixer.norm.weight", d->inner_size);
    mt_hf_linear(build, "mixer.out_proj", d->embedding_length, d->inner_size, bias);
}

static void add_delta_net(struct mt_hf_build *build)
{
    const struct mt_model_description *d = build->description;
    uint64_t keys = d->group_count * d->state_size;
    mt_hf_linear(build, "linear_attn.in_proj_qkv", 2 * keys + d->inner_size, d->embedding_length,
                 0);
    mt_hf_linear(build, "linear_attn.in_proj_z", d->inner_size, d->embedding_length, 0);
    mt_hf_linear(build, "linear_attn.in_proj_b", d->time_step_rank, d->embedding_length, 0);
    mt_hf_linear(build, "linear_attn.in_proj_a", d->time_step_rank, d->embedding_length, 0);
    convolution(build, "linear_attn.conv1d", 2 * keys + d->inner_size, 0);
    mt_hf_vector(build, "linear_attn.dt_bias", d->time_step_rank);
    mt_hf_vector(build, "linear_attn.A_log", d->time_step_rank);
    mt_hf_vector(build, "linear_attn.norm.weight",
                 d->time_step_rank ? d->inner_size / d->time_step_rank : 0);
    mt_hf_linear(build, "linear_attn.out_proj", d->embedding_length, d->inner_size, 0);
}

static void add_kimi_delta(struct mt_hf_build *build)
{
    const struct mt_model_description *d = build->description;
    static const char *const projections[] = {"self_attn.q_proj", "self_attn.k_proj",
                                              "self_attn.v_proj"};
    static const char *const convolutions[] = {"self_attn.q_conv1d", "self_attn.k_conv1d",
                                               "self_attn.v_conv1d"};
    for (int i = 0; i < 3; i++) {
        mt_hf_linear(build, projections[i], d->inner_size, d->embedding_length, 0);
        convolution(build, convolutions[i], d->inner_size, 0);
    }
    mt_hf_vector(build, "self_attn.A_log", d->time_step_rank);
    mt_hf_vector(build, "self_attn.dt_bias", d->inner_size);
    mt_hf_linear(build, "self_attn.f_a_proj", d->state_size, d->embedding_length, 0);
    mt_hf_linear(build, "self_attn.f_b_proj", d->inner_size, d->state_size, 0);
    mt_hf_linear(build, "self_attn.b_proj", d->time_step_rank, d->embedding_length, 0);
    mt_hf_linear(build, "self_attn.g_a_proj", d->state_size, d->embedding_length, 0);
    mt_hf_linear(build, "self_attn.g_b_proj", d->inner_size, d->state_size, 0);
    mt_hf_vector(build, "self_attn.o_norm.weight", d->state_size);
    mt_hf_linear(build, "self_attn.o_proj", d->embedding_length, d->inner_size, 0);
}

static void add_short_convolution(struct mt_hf_build *build)
{
    const struct mt_model_description *d = build->description;
    int bias = mt_hf_number(build->config, MT_HF_conv_bias, 0) == 1;
    mt_hf_linear(build, "conv.in_proj", 3 * d->embedding_length, d->embedding_length, bias);
    mt_hf_matrix(build, "conv.conv.weight", d->embedding_length, d->short_conv_cache);
    if (bias)
        mt_hf_vector(build, "conv.conv.bias", d->embedding_length);
    mt_hf_linear(build, "conv.out_proj", d->embedding_length, d->embedding_length, bias);
}

/* Layers compress past tokens 4 to 1, with an indexer, or 128 to 1, or not at all. */
static void add_compressor(struct mt_hf_build *build, uint64_t index, uint64_t head)
{
    const struct mt_model_description *d = build->description;
    uint64_t ratio = build->ratios[index];
    if (!ratio)
        return;
    uint64_t width = ratio == 4 ? 2 * head : head;
    mt_hf_matrix(build, "self_attn.compressor.ape", ratio, width);
    mt_hf_matrix(build, "self_attn.compressor.wkv.weight", width, d->embedding_length);
    mt_hf_matrix(build, "self_attn.compressor.wgate.weight", width, d->embedding_length);
    mt_hf_vector(build, "self_attn.compressor.norm.weight", head);
    if (ratio != 4)
        return;
    width = 2 * d->indexer_head_size;
    mt_hf_matrix(build, "self_attn.indexer.compressor.ape", ratio, width);
    mt_hf_matrix(build, "self_attn.indexer.compressor.wkv.weight", width, d->embedding_length);
    mt_hf_matrix(build, "self_attn.indexer.compressor.wgate.weight", width, d->embedding_length);
    mt_hf_vector(build, "self_attn.indexer.compressor.norm.weight", d->indexer_head_size);
    mt_hf_linear(build, "self_attn.indexer.wq_b", d->indexer_heads * d->indexer_head_size,
                 d->q_lora_rank, 0);
    mt_hf_matrix(build, "self_attn.indexer.weights_proj.weight", d->indexer_heads,
                 d->embedding_length);
}

static void add_deepseek4(struct mt_hf_build *build, const struct mt_model_layer *layer,
                          uint64_t index)
{
    const struct mt_model_description *d = build->description;
    uint64_t groups = mt_hf_number(build->config, MT_HF_o_groups, 1);
    uint64_t rank = mt_hf_number(build->config, MT_HF_o_lora_rank, 0);
    uint64_t queries = layer->heads * layer->key_size;
    mt_hf_vector(build, "self_attn.attn_sink", layer->heads);
    mt_hf_linear(build, "self_attn.wq_a", d->q_lora_rank, d->embedding_length, 0);
    mt_hf_vector(build, "self_attn.q_norm.weight", d->q_lora_rank);
    mt_hf_linear(build, "self_attn.wq_b", queries, d->q_lora_rank, 0);
    mt_hf_linear(build, "self_attn.wkv", layer->key_size, d->embedding_length, 0);
    mt_hf_vector(build, "self_attn.kv_norm.weight", layer->key_size);
    mt_hf_linear(build, "self_attn.wo_a", groups * rank, groups ? queries / groups : 0, 0);
    mt_hf_linear(build, "self_attn.wo_b", d->embedding_length, groups * rank, 0);
    if (!layer->is_draft)
        add_compressor(build, index, layer->key_size);
}

static void add_recurrence(struct mt_hf_build *build, enum mt_recurrence recurrence)
{
    switch (recurrence) {
    case MT_RECURRENCE_MAMBA:
        add_mamba(build);
        break;
    case MT_RECURRENCE_MAMBA2:
        add_mamba2(build);
        break;
    case MT_RECURRENCE_DELTA_NET:
        add_delta_net(build);
        break;
    case MT_RECURRENCE_KIMI_DELTA:
        add_kimi_delta(build);
        break;
    case MT_RECURRENCE_SHORT_CONVOLUTION:
        add_short_convolution(build);
        break;
    case MT_RECURRENCE_NONE:
    case MT_RECURRENCE_RWKV:
    default:
        break;
    }
}

void mt_hf_mixers(struct mt_hf_build *build, const struct mt_model_layer *layer, uint64_t index)
{
    if (layer->attention == MT_ATTENTION_LATENT)
        add_latent(build, layer, index);
    else if (layer->attention != MT_ATTENTION_NONE && mt_hf_trait(build, MT_HF_DEEPSEEK4))
        add_deepseek4(build, layer, index);
    else if (layer->attention != MT_ATTENTION_NONE)
        add_attention(build, layer, index);
    add_recurrence(build, layer->recurrence);
}
