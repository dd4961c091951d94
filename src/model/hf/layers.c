/* SPDX-License-Identifier: MIT */
/* From the fields of a config.json to the layers of the model. Knows no tensors. */
#include <string.h>

#include <memtally/tally.h>
#include <memtally/units.h>

#include "base/error.h"
#include "config.h"
#include "model/gguf/family.h"

/* What a layer is, before it is known how large. */
enum layer_type {
    TYPE_FULL,
    TYPE_SLIDING,
    TYPE_CHUNKED,
    TYPE_RECURRENT,
    TYPE_EXPERTS_ONLY,
    TYPE_MLP_ONLY
};

struct layering {
    const struct mt_hf_config *config;
    struct mt_model_description *description;
    uint64_t n; /* layers without draft ones */
    uint8_t *types;
    uint8_t *sparse; /* whether a layer has experts */
    uint64_t heads;
    uint64_t kv_heads;
    uint64_t head_size;
    uint64_t ff_length;
    uint64_t experts;
    uint64_t experts_used;
    uint64_t expert_ff_length;
    uint64_t shared_ff_length;
};

int mt_hf_fail(const struct mt_hf_config *config, enum mt_hf_field field, int code,
               const char *what, struct mt_error *error)
{
    const struct mt_hf_value *value = &config->values[field];
    uint64_t offset = value->is_there && value->token.text
                          ? (uint64_t)(value->token.text - config->text)
                          : MT_NO_OFFSET;
    return mt_fail(error, code, offset, "%s: %s", config->path, what);
}

static int has_trait(const struct layering *layering, unsigned trait)
{
    return (layering->config->family->traits & trait) != 0;
}

static int type_of_word(const struct mt_json_token *word)
{
    static const struct {
        const char *word;
        enum layer_type type;
    } words[] = {{"full_attention", TYPE_FULL},
                 {"attention", TYPE_FULL},
                 {"indexed_attention", TYPE_FULL},
                 {"deepseek_sparse_attention", TYPE_FULL},
                 {"sliding_attention", TYPE_SLIDING},
                 {"heavily_compressed_attention", TYPE_SLIDING},
                 {"compressed_sparse_attention", TYPE_SLIDING},
                 {"chunked_attention", TYPE_CHUNKED},
                 {"linear_attention", TYPE_RECURRENT},
                 {"mamba", TYPE_RECURRENT},
                 {"conv", TYPE_RECURRENT},
                 {"moe", TYPE_EXPERTS_ONLY},
                 {"mlp", TYPE_MLP_ONLY}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (mt_json_is(word, words[i].word))
            return (int)words[i].type;
    }
    return -1;
}

/* `to` is the layering. A word that is not known ends the list with MT_EFORMAT. */
static int take_type(void *to, size_t index, const struct mt_json_token *value)
{
    struct layering *layering = to;
    int type = value->type == MT_JSON_STRING ? type_of_word(value) : -1;
    if (type < 0)
        return MT_EFORMAT;
    if (index < layering->n)
        layering->types[index] = (uint8_t)type;
    return 0;
}

static int take_full_index(void *to, size_t index, const struct mt_json_token *value)
{
    struct layering *layering = to;
    uint64_t layer;
    (void)index;
    if (mt_json_u64(value, &layer) == 0 && layer < layering->n)
        layering->types[layer] = TYPE_FULL;
    return 0;
}

/* The same, counted from one. */
static int take_full_number(void *to, size_t index, const struct mt_json_token *value)
{
    struct layering *layering = to;
    uint64_t number;
    (void)index;
    if (mt_json_u64(value, &number) == 0 && number > 0 && number <= layering->n)
        layering->types[number - 1] = TYPE_FULL;
    return 0;
}

/* Ones mark layers with a window. */
static int take_window_mark(void *to, size_t index, const struct mt_json_token *value)
{
    struct layering *layering = to;
    uint64_t mark;
    if (index < layering->n && mt_json_u64(value, &mark) == 0)
        layering->types[index] = mark ? TYPE_SLIDING : TYPE_FULL;
    return 0;
}

/* Zeros mark layers without rotary positions, which attend to everything. */
static int take_rope_mark(void *to, size_t index, const struct mt_json_token *value)
{
    struct layering *layering = to;
    uint64_t mark;
    if (index < layering->n && mt_json_u64(value, &mark) == 0)
        layering->types[index] = mark ? TYPE_CHUNKED : TYPE_FULL;
    return 0;
}

/* Nemotron's pattern: M for mamba, * for attention, - for a feed-forward, E for experts. */
static void take_pattern(struct layering *layering, const struct mt_json_token *pattern)
{
    for (uint64_t i = 0; i < layering->n && i < pattern->length; i++) {
        char c = pattern->text[i];
        layering->types[i] = c == 'M'   ? TYPE_RECURRENT
                             : c == 'E' ? TYPE_EXPERTS_ONLY
                             : c == '-' ? TYPE_MLP_ONLY
                                        : TYPE_FULL;
    }
}

static void fill(struct layering *layering, enum layer_type type)
{
    memset(layering->types, (int)type, layering->n);
}

/* Every `period`-th layer is of another type than the rest. */
static void fill_period(struct layering *layering, uint64_t period, uint64_t offset,
                        enum layer_type there, enum layer_type elsewhere)
{
    for (uint64_t i = 0; i < layering->n; i++)
        layering->types[i] = period && i % period == offset ? (uint8_t)there : (uint8_t)elsewhere;
}

/* "LLLG" of EXAONE: a period spelt out. */
static void take_local_global(struct layering *layering, const struct mt_json_token *pattern)
{
    for (uint64_t i = 0; i < layering->n && pattern->length; i++)
        layering->types[i] = pattern->text[i % pattern->length] == 'L' ? TYPE_SLIDING : TYPE_FULL;
}

static void types_of_period(struct layering *layering)
{
    const struct mt_hf_config *config = layering->config;
    enum layer_type local = has_trait(layering, MT_HF_CHUNKED) ? TYPE_CHUNKED : TYPE_SLIDING;
    uint64_t period = MT_HF_FIRST(config, MT_HF_sliding_window_pattern,
                                  MT_HF__sliding_window_pattern, MT_HF_global_attn_every_n_layers);
    if (!period)
        period = config->family->period;
    if (config->values[MT_HF_sliding_window_pattern].is_there &&
        config->values[MT_HF_sliding_window_pattern].token.type == MT_JSON_STRING)
        take_local_global(layering, &config->values[MT_HF_sliding_window_pattern].token);
    else if (period == 1)
        fill(layering, local);
    else if (period)
        fill_period(layering, period, has_trait(layering, MT_HF_FIRST_IS_GLOBAL) ? 0 : period - 1,
                    TYPE_FULL, local);
    if (has_trait(layering, MT_HF_WINDOW_SWITCH) &&
        mt_hf_number(config, MT_HF_use_sliding_window, 0)) {
        for (uint64_t i = mt_hf_number(config, MT_HF_max_window_layers, 0); i < layering->n; i++)
            layering->types[i] = TYPE_SLIDING;
    }
    if (has_trait(layering, MT_HF_GEMMA4))
        layering->types[layering->n - 1] = TYPE_FULL;
}

static int types_of_kimi(struct layering *layering)
{
    struct mt_hf_config part = {.path = layering->config->path};
    part.values[MT_HF_full_attn_idxs] =
        mt_hf_entry(layering->config, MT_HF_linear_attn_config, "full_attn_layers");
    if (!part.values[MT_HF_full_attn_idxs].is_there) {
        fill_period(layering, 4, 0, TYPE_FULL, TYPE_RECURRENT);
        layering->types[0] = TYPE_RECURRENT;
        return 0;
    }
    fill(layering, TYPE_RECURRENT);
    return mt_hf_each(&part, MT_HF_full_attn_idxs, take_full_number, layering);
}

static int types_of_hybrid(struct layering *layering)
{
    const struct mt_hf_config *config = layering->config;
    uint64_t period = mt_hf_number(config, MT_HF_attn_layer_period, 0);
    uint64_t interval = mt_hf_number(config, MT_HF_full_attention_interval, 0);
    if (has_trait(layering, MT_HF_KIMI_DELTA))
        return types_of_kimi(layering);
    fill(layering, TYPE_RECURRENT);
    if (config->values[MT_HF_full_attn_idxs].is_there)
        return mt_hf_each(config, MT_HF_full_attn_idxs, take_full_index, layering);
    if (config->values[MT_HF_attn_layer_indices].is_there)
        return mt_hf_each(config, MT_HF_attn_layer_indices, take_full_index, layering);
    if (period)
        fill_period(layering, period, mt_hf_number(config, MT_HF_attn_layer_offset, 0), TYPE_FULL,
                    TYPE_RECURRENT);
    else if (interval && has_trait(layering, MT_HF_LINEAR_ATTENTION))
        fill_period(layering, interval, interval - 1, TYPE_FULL, TYPE_RECURRENT);
    else if (has_trait(layering, MT_HF_SHORT_CONVOLUTION))
        fill(layering, TYPE_FULL);
    return 0;
}

static int count_entry(void *to, size_t index, const struct mt_json_token *value)
{
    (void)value;
    *(uint64_t *)to = index + 1;
    return 0;
}

#define HYBRIDS                                                                                    \
    (MT_HF_MAMBA | MT_HF_MAMBA2 | MT_HF_LINEAR_ATTENTION | MT_HF_KIMI_DELTA |                      \
     MT_HF_SHORT_CONVOLUTION)

static int choose_types(struct layering *layering, struct mt_error *error)
{
    const struct mt_hf_config *config = layering->config;
    const struct mt_hf_value *pattern = &config->values[MT_HF_hybrid_override_pattern];
    enum mt_hf_field list =
        config->values[MT_HF_layer_types].is_there ? MT_HF_layer_types : MT_HF_layers_block_type;
    if (config->values[list].is_there && !has_trait(layering, MT_HF_BOTH)) {
        if (mt_hf_each(config, list, take_type, layering))
            return mt_hf_fail(config, list, MT_EFORMAT,
                              "a kind of layer that is not known in the list of layers", error);
        uint64_t n = 0;
        mt_hf_each(config, list, count_entry, &n);
        if (n < layering->n)
            return mt_hf_fail(config, list, MT_EFORMAT,
                              "expected as many kinds of layers as num_hidden_layers says", error);
        return 0;
    }
    if (pattern->is_there && pattern->token.type == MT_JSON_STRING)
        take_pattern(layering, &pattern->token);
    else if (config->values[MT_HF_hybrid_layer_pattern].is_there)
        mt_hf_each(config, MT_HF_hybrid_layer_pattern, take_window_mark, layering);
    else if (has_trait(layering, HYBRIDS) && !has_trait(layering, MT_HF_BOTH))
        types_of_hybrid(layering);
    else if (has_trait(layering, MT_HF_DEEPSEEK4))
        fill(layering, TYPE_SLIDING);
    else
        types_of_period(layering);
    if (has_trait(layering, MT_HF_CHUNKED))
        mt_hf_each(config, MT_HF_no_rope_layers, take_rope_mark, layering);
    return 0;
}

static int take_mlp_type(void *to, size_t index, const struct mt_json_token *value)
{
    struct layering *layering = to;
    if (index < layering->n)
        layering->sparse[index] = !mt_json_is(value, "dense");
    return 0;
}

static int take_expert_mark(void *to, size_t index, const struct mt_json_token *value)
{
    struct layering *layering = to;
    uint64_t mark;
    if (index < layering->n)
        layering->sparse[index] = mt_json_u64(value, &mark) == 0 && mark;
    return 0;
}

static int take_dense_index(void *to, size_t index, const struct mt_json_token *value)
{
    struct layering *layering = to;
    uint64_t layer;
    (void)index;
    if (mt_json_u64(value, &layer) == 0 && layer < layering->n)
        layering->sparse[layer] = 0;
    return 0;
}

static int is_sparse(const struct layering *layering, uint64_t i)
{
    const struct mt_hf_config *config = layering->config;
    uint64_t leading = MT_HF_FIRST(config, MT_HF_first_k_dense_replace, MT_HF_num_dense_layers);
    uint64_t frequency = mt_hf_number(config, MT_HF_moe_layer_freq, 1);
    uint64_t step = MT_HF_FIRST(config, MT_HF_decoder_sparse_step, MT_HF_interleave_moe_layer_step);
    uint64_t period = mt_hf_number(config, MT_HF_expert_layer_period, 0);
    if (layering->types[i] == TYPE_MLP_ONLY)
        return 0;
    if (has_trait(layering, MT_HF_ONE_MIXER))
        return layering->types[i] == TYPE_EXPERTS_ONLY;
    if (period)
        return i % period == mt_hf_number(config, MT_HF_expert_layer_offset, 0);
    if (step)
        return (i + 1) % step == 0;
    return i >= leading && (frequency <= 1 || i % frequency == 0);
}

static void choose_sparse(struct layering *layering)
{
    const struct mt_hf_config *config = layering->config;
    for (uint64_t i = 0; layering->experts && i < layering->n; i++)
        layering->sparse[i] = (uint8_t)is_sparse(layering, i);
    if (!layering->experts)
        return;
    mt_hf_each(config, MT_HF_mlp_only_layers, take_dense_index, layering);
    mt_hf_each(config, MT_HF_mlp_layer_types, take_mlp_type, layering);
    mt_hf_each(config, MT_HF_moe_layer_freq, take_expert_mark, layering);
}

/* Both lists need a layer's index, so that a list longer than the layers does no harm. */
static uint64_t round_up(uint64_t number, uint64_t multiple)
{
    return multiple ? (number + multiple - 1) / multiple * multiple : number;
}

/* LFM2 takes two thirds of the length, times a factor, to a multiple. */
static uint64_t lfm2_ff_length(const struct mt_hf_config *config)
{
    uint64_t length = MT_HF_FIRST(config, MT_HF_block_ff_dim, MT_HF_intermediate_size);
    const struct mt_hf_value *factor = &config->values[MT_HF_block_ffn_dim_multiplier];
    double by = 1;
    if (!mt_hf_number(config, MT_HF_block_auto_adjust_ff_dim, 0))
        return length;
    length = 2 * length / 3;
    if (factor->is_there && factor->token.type == MT_JSON_NUMBER &&
        mt_json_double(&factor->token, &by) == 0 && by > 0 && by < 1024)
        length = (uint64_t)(by * (double)length);
    return round_up(length, mt_hf_number(config, MT_HF_block_multiple_of, 256));
}

static void take_ff_lengths(struct layering *layering)
{
    const struct mt_hf_config *config = layering->config;
    uint64_t usual = MT_HF_FIRST(config, MT_HF_n_inner, MT_HF_ffn_hidden_size, MT_HF_ffn_dim,
                                 MT_HF_intermediate_size, MT_HF_hidden_dim, MT_HF_d_ff);
    layering->ff_length = has_trait(layering, MT_HF_CHUNKED)
                              ? mt_hf_number(config, MT_HF_intermediate_size_mlp, usual)
                              : usual;
    if (has_trait(layering, MT_HF_SHORT_CONVOLUTION))
        layering->ff_length = lfm2_ff_length(config);
    if (!layering->ff_length && has_trait(layering, MT_HF_PLAIN_MLP))
        layering->ff_length = 4 * layering->description->embedding_length;
    layering->experts = MT_HF_FIRST(config, MT_HF_n_routed_experts, MT_HF_num_experts,
                                    MT_HF_num_local_experts, MT_HF_moe_num_experts);
    if (has_trait(layering, MT_HF_GEMMA4) && !mt_hf_number(config, MT_HF_enable_moe_block, 0))
        layering->experts = 0;
    if (!layering->experts)
        return;
    layering->experts_used =
        MT_HF_FIRST(config, MT_HF_num_experts_per_tok, MT_HF_num_experts_per_token,
                    MT_HF_top_k_experts, MT_HF_moe_topk);
    layering->expert_ff_length =
        MT_HF_FIRST(config, MT_HF_moe_intermediate_size, MT_HF_intermediate_size);
}

static void take_shared(struct layering *layering)
{
    const struct mt_hf_config *config = layering->config;
    uint64_t n = MT_HF_FIRST(config, MT_HF_n_shared_experts, MT_HF_num_shared_experts);
    uint64_t own =
        MT_HF_FIRST(config, MT_HF_shared_expert_intermediate_size,
                    MT_HF_moe_shared_expert_intermediate_size, MT_HF_shared_intermediate_size);
    if (has_trait(layering, MT_HF_CHUNKED))
        own = layering->expert_ff_length;
    if (!layering->experts && mt_hf_number(config, MT_HF_shared_intermediate_size, 0))
        layering->ff_length = own;
    if (!layering->experts)
        return;
    layering->shared_ff_length = own ? own : n * layering->expert_ff_length;
}

static uint64_t kv_heads_of(const struct layering *layering)
{
    const struct mt_hf_config *config = layering->config;
    uint64_t n = MT_HF_FIRST(config, MT_HF_num_key_value_heads, MT_HF_n_head_kv, MT_HF_num_kv_heads,
                             MT_HF_multi_query_group_num);
    if (mt_hf_number(config, MT_HF_multi_query, 0) &&
        !mt_hf_number(config, MT_HF_new_decoder_architecture, 0))
        n = 1;
    return n ? n : layering->heads;
}

static enum mt_recurrence recurrence_of(const struct layering *layering)
{
    unsigned traits = layering->config->family->traits;
    return traits & MT_HF_MAMBA               ? MT_RECURRENCE_MAMBA
           : traits & MT_HF_MAMBA2            ? MT_RECURRENCE_MAMBA2
           : traits & MT_HF_LINEAR_ATTENTION  ? MT_RECURRENCE_DELTA_NET
           : traits & MT_HF_KIMI_DELTA        ? MT_RECURRENCE_KIMI_DELTA
           : traits & MT_HF_SHORT_CONVOLUTION ? MT_RECURRENCE_SHORT_CONVOLUTION
                                              : MT_RECURRENCE_NONE;
}

static void set_window(const struct layering *layering, struct mt_model_layer *layer)
{
    const struct mt_hf_config *config = layering->config;
    if (layer->attention == MT_ATTENTION_CHUNKED)
        layer->window = mt_hf_number(config, MT_HF_attention_chunk_size, 0);
    if (layer->attention == MT_ATTENTION_SLIDING)
        layer->window = MT_HF_FIRST(config, MT_HF_local_attention, MT_HF_sliding_window);
    if (!layer->window)
        layer->attention = MT_ATTENTION_GLOBAL;
}

/* Layers of one kind may have heads of their own: those with a window in MiMo, those without in
 * Gemma 4. */
static void set_heads(const struct layering *layering, struct mt_model_layer *layer)
{
    const struct mt_hf_config *config = layering->config;
    int local = layer->attention == MT_ATTENTION_SLIDING;
    layer->heads = layering->heads;
    layer->kv_heads = layering->kv_heads;
    layer->key_size = layering->head_size;
    layer->value_size = mt_hf_number(config, MT_HF_v_head_dim, layering->head_size);
    if (local) {
        layer->heads = mt_hf_number(config, MT_HF_swa_num_attention_heads, layer->heads);
        layer->kv_heads = mt_hf_number(config, MT_HF_swa_num_key_value_heads, layer->kv_heads);
        layer->key_size = mt_hf_number(config, MT_HF_swa_head_dim, layer->key_size);
        layer->value_size = mt_hf_number(config, MT_HF_swa_v_head_dim, layer->value_size);
    } else if (has_trait(layering, MT_HF_GEMMA4)) {
        layer->key_size = mt_hf_number(config, MT_HF_global_head_dim, layer->key_size);
        layer->value_size = layer->key_size;
        if (mt_hf_number(config, MT_HF_attention_k_eq_v, 0))
            layer->kv_heads =
                mt_hf_number(config, MT_HF_num_global_key_value_heads, layer->kv_heads);
    }
    if (has_trait(layering, MT_HF_DEEPSEEK4))
        layer->value_size = 0;
}

static void set_attention(const struct layering *layering, enum layer_type type,
                          struct mt_model_layer *layer)
{
    const struct mt_model_description *description = layering->description;
    if (description->kv_lora_rank) {
        layer->attention = MT_ATTENTION_LATENT;
        layer->heads = layering->heads;
        layer->kv_heads = 1;
        layer->key_size = description->kv_lora_rank + description->qk_rope_head_size;
        return;
    }
    layer->attention = type == TYPE_SLIDING   ? MT_ATTENTION_SLIDING
                       : type == TYPE_CHUNKED ? MT_ATTENTION_CHUNKED
                                              : MT_ATTENTION_GLOBAL;
    set_window(layering, layer);
    set_heads(layering, layer);
}

static void set_feed_forward(const struct layering *layering, int sparse,
                             struct mt_model_layer *layer)
{
    if (sparse) {
        layer->experts = layering->experts;
        layer->experts_used = layering->experts_used;
        layer->expert_ff_length = layering->expert_ff_length;
        layer->shared_ff_length = layering->shared_ff_length;
    }
    if (!sparse || has_trait(layering, MT_HF_GEMMA4))
        layer->ff_length = layering->ff_length;
}

static void set_layer(const struct layering *layering, uint64_t i, struct mt_model_layer *layer)
{
    enum layer_type type = (enum layer_type)layering->types[i];
    int one_mixer = has_trait(layering, MT_HF_ONE_MIXER);
    layer->cache_layer = i;
    if (type == TYPE_RECURRENT || has_trait(layering, MT_HF_BOTH))
        layer->recurrence = recurrence_of(layering);
    if (type <= TYPE_CHUNKED)
        set_attention(layering, type, layer);
    if (!one_mixer || type == TYPE_EXPERTS_ONLY || type == TYPE_MLP_ONLY)
        set_feed_forward(layering, layering->sparse[i], layer);
}

/* The last layers may read the cache of the last layer of their own kind before them. */
static void share_caches(const struct layering *layering, struct mt_model_layer *layers)
{
    uint64_t shared = mt_hf_number(layering->config, MT_HF_num_kv_shared_layers, 0);
    uint64_t own = shared < layering->n ? layering->n - shared : layering->n;
    for (uint64_t i = own; i < layering->n; i++) {
        for (uint64_t from = own; from-- > 0 && layers[i].cache_layer == i;) {
            if (layers[from].attention == layers[i].attention)
                layers[i].cache_layer = from;
        }
    }
    if (has_trait(layering, MT_HF_GEMMA4) &&
        mt_hf_number(layering->config, MT_HF_use_double_wide_mlp, 0)) {
        for (uint64_t i = own; i < layering->n; i++)
            layers[i].ff_length *= 2;
    }
}

/* A feed-forward length for each layer. */
static int take_ff_length(void *to, size_t index, const struct mt_json_token *value)
{
    struct layering *layering = to;
    struct mt_model_layer *layers = (struct mt_model_layer *)layering->description->layers;
    uint64_t length;
    if (index < layering->n && mt_json_u64(value, &length) == 0 && length <= MT_HF_NUMBER_MAX)
        layers[index].ff_length = length;
    return 0;
}

/* A draft layer has the attention of the model and the feed-forward of its last layer. */
static void set_draft(const struct layering *layering, uint64_t i, struct mt_model_layer *layer)
{
    layer->is_draft = 1;
    layer->cache_layer = i;
    set_attention(layering, has_trait(layering, MT_HF_DEEPSEEK4) ? TYPE_SLIDING : TYPE_FULL, layer);
    set_feed_forward(
        layering, layering->sparse[layering->n - 1] || has_trait(layering, MT_HF_ONE_MIXER), layer);
}

static void set_recurrent(struct layering *layering)
{
    const struct mt_hf_config *config = layering->config;
    struct mt_model_description *description = layering->description;
    uint64_t hidden = description->embedding_length;
    uint64_t expand = MT_HF_FIRST(config, MT_HF_mamba_expand, MT_HF_expand);
    description->conv_kernel = MT_HF_FIRST(config, MT_HF_mamba_d_conv, MT_HF_conv_kernel);
    description->state_size =
        MT_HF_FIRST(config, MT_HF_mamba_d_state, MT_HF_ssm_state_size, MT_HF_state_size);
    if (has_trait(layering, MT_HF_MAMBA)) {
        description->inner_size = expand * hidden;
        description->time_step_rank =
            MT_HF_FIRST(config, MT_HF_mamba_dt_rank, MT_HF_time_step_rank);
        if (!description->time_step_rank)
            description->time_step_rank = (hidden + 15) / 16;
        return;
    }
    description->time_step_rank =
        MT_HF_FIRST(config, MT_HF_mamba_n_heads, MT_HF_mamba_num_heads, MT_HF_num_heads);
    description->group_count = MT_HF_FIRST(config, MT_HF_mamba_n_groups, MT_HF_n_groups);
    description->inner_size = MT_HF_FIRST(config, MT_HF_mamba_d_ssm);
    uint64_t head = mt_hf_number(config, MT_HF_mamba_head_dim, 0);
    if (!description->inner_size)
        description->inner_size = head ? head * description->time_step_rank : expand * hidden;
}

static void set_linear_attention(struct layering *layering)
{
    const struct mt_hf_config *config = layering->config;
    struct mt_model_description *description = layering->description;
    if (has_trait(layering, MT_HF_KIMI_DELTA)) {
        struct mt_hf_value size = mt_hf_entry(config, MT_HF_linear_attn_config, "head_dim");
        struct mt_hf_value heads = mt_hf_entry(config, MT_HF_linear_attn_config, "num_heads");
        struct mt_hf_value kernel =
            mt_hf_entry(config, MT_HF_linear_attn_config, "short_conv_kernel_size");
        description->state_size = size.number != MT_UNKNOWN
                                      ? size.number
                                      : mt_hf_number(config, MT_HF_linear_key_head_dim, 0);
        description->time_step_rank = heads.number != MT_UNKNOWN
                                          ? heads.number
                                          : mt_hf_number(config, MT_HF_linear_num_key_heads, 0);
        description->conv_kernel = kernel.number != MT_UNKNOWN
                                       ? kernel.number
                                       : mt_hf_number(config, MT_HF_linear_conv_kernel_dim, 0);
        description->group_count = description->time_step_rank;
        description->inner_size = description->time_step_rank * description->state_size;
        return;
    }
    description->conv_kernel = mt_hf_number(config, MT_HF_linear_conv_kernel_dim, 0);
    description->state_size = mt_hf_number(config, MT_HF_linear_key_head_dim, 0);
    description->group_count = mt_hf_number(config, MT_HF_linear_num_key_heads, 0);
    description->time_step_rank = mt_hf_number(config, MT_HF_linear_num_value_heads, 0);
    description->inner_size =
        description->time_step_rank * mt_hf_number(config, MT_HF_linear_value_head_dim, 0);
}

static void set_recurrences(struct layering *layering)
{
    if (has_trait(layering, MT_HF_MAMBA | MT_HF_MAMBA2))
        set_recurrent(layering);
    if (has_trait(layering, MT_HF_LINEAR_ATTENTION | MT_HF_KIMI_DELTA))
        set_linear_attention(layering);
    if (has_trait(layering, MT_HF_SHORT_CONVOLUTION))
        layering->description->short_conv_cache =
            mt_hf_number(layering->config, MT_HF_conv_L_cache, 0);
}

/* Some families divide positions into sections also where config.json leaves out which. */
static int has_sections(const struct mt_hf_config *config)
{
    const struct mt_family *family = mt_family_of_gguf(mt_arch_name(config->family->arch));
    return family && (family->traits & MT_FAMILY_SECTIONS);
}

static void set_numbers(struct mt_model_description *description, const struct mt_hf_config *config)
{
    description->embedding_length =
        MT_HF_FIRST(config, MT_HF_n_embd, MT_HF_d_model, MT_HF_dim, MT_HF_hidden_size);
    description->vocabulary = mt_hf_number(config, MT_HF_vocab_size, 0);
    description->context_length = MT_HF_FIRST(config, MT_HF_n_positions, MT_HF_max_sequence_length,
                                              MT_HF_max_position_embeddings);
    description->tied_output =
        MT_HF_FIRST(config, MT_HF_tie_embedding, MT_HF_tie_word_embeddings) == 1;
    description->is_embedder = (config->family->traits & MT_HF_EMBEDDER) != 0;
    description->kv_lora_rank = mt_hf_number(config, MT_HF_kv_lora_rank, 0);
    description->q_lora_rank = mt_hf_number(config, MT_HF_q_lora_rank, 0);
    if (description->kv_lora_rank) {
        description->qk_rope_head_size = mt_hf_number(config, MT_HF_qk_rope_head_dim, 0);
        description->qk_nope_head_size = mt_hf_number(config, MT_HF_qk_nope_head_dim, 0);
        description->value_head_size = mt_hf_number(config, MT_HF_v_head_dim, 0);
    }
    description->indexer_heads = mt_hf_number(config, MT_HF_index_n_heads, 0);
    description->indexer_head_size = mt_hf_number(config, MT_HF_index_head_dim, 0);
    description->indexer_top_k = mt_hf_number(config, MT_HF_index_topk, 0);
    description->per_layer_embedding_length =
        mt_hf_number(config, MT_HF_hidden_size_per_layer_input, 0);
    description->altup_inputs = mt_hf_number(config, MT_HF_altup_num_inputs, 0);
    description->leading_dense_layers =
        MT_HF_FIRST(config, MT_HF_first_k_dense_replace, MT_HF_num_dense_layers);
    description->position_streams =
        has_sections(config) ||
                mt_hf_entry(config, MT_HF_rope_parameters, "mrope_section").is_there ||
                mt_hf_entry(config, MT_HF_rope_scaling, "mrope_section").is_there
            ? 4
            : 1;
}

static int count_layers(struct layering *layering, struct mt_error *error)
{
    const struct mt_hf_config *config = layering->config;
    const struct mt_hf_value *pattern = &config->values[MT_HF_hybrid_override_pattern];
    layering->n = MT_HF_FIRST(config, MT_HF_n_layer, MT_HF_n_layers, MT_HF_num_hidden_layers,
                              MT_HF_num_layers);
    if (!layering->n && pattern->is_there && pattern->token.type == MT_JSON_STRING)
        layering->n = pattern->token.length;
    for (int i = 0; i < 2 && !layering->n; i++)
        mt_hf_each(config, i ? MT_HF_layers_block_type : MT_HF_layer_types, count_entry,
                   &layering->n);
    uint64_t drafts =
        MT_HF_FIRST(config, MT_HF_num_nextn_predict_layers, MT_HF_mtp_num_hidden_layers);
    if (layering->n == 0 || layering->n > MT_HF_LAYERS_MAX || drafts > MT_HF_LAYERS_MAX)
        return mt_hf_fail(config, MT_HF_num_hidden_layers, MT_EFORMAT,
                          "expected num_hidden_layers from 1 to 4096", error);
    layering->description->n_draft_layers = drafts;
    layering->description->n_layers = layering->n + drafts;
    return 0;
}

static int check_sizes(struct layering *layering, struct mt_error *error)
{
    const struct mt_hf_config *config = layering->config;
    struct mt_model_description *description = layering->description;
    int attends =
        !has_trait(layering, MT_HF_ONE_MIXER) || mt_hf_number(config, MT_HF_num_attention_heads, 0);
    if (!description->embedding_length)
        return mt_hf_fail(config, MT_HF_hidden_size, MT_EFORMAT,
                          "expected hidden_size to be a number from 1 on", error);
    if (attends && !layering->heads)
        return mt_hf_fail(config, MT_HF_num_attention_heads, MT_EFORMAT,
                          "expected num_attention_heads to be a number from 1 on", error);
    if (attends && mt_hf_number(config, MT_HF_num_key_value_heads, 1) == 0)
        return mt_hf_fail(config, MT_HF_num_key_value_heads, MT_EFORMAT,
                          "expected num_key_value_heads to be a number from 1 on", error);
    if (attends && layering->kv_heads > layering->heads)
        return mt_hf_fail(config, MT_HF_num_key_value_heads, MT_EFORMAT,
                          "num_key_value_heads is more than num_attention_heads", error);
    return 0;
}

static void take_heads(struct layering *layering)
{
    const struct mt_hf_config *config = layering->config;
    layering->heads = MT_HF_FIRST(config, MT_HF_n_head, MT_HF_n_heads, MT_HF_num_attention_heads);
    layering->kv_heads = kv_heads_of(layering);
    layering->head_size = MT_HF_FIRST(config, MT_HF_head_dim, MT_HF_kv_channels);
    if (!layering->head_size && layering->heads)
        layering->head_size = layering->description->embedding_length / layering->heads;
}

static void make_layers(struct layering *layering, struct mt_model_layer *layers)
{
    struct mt_model_description *description = layering->description;
    for (uint64_t i = 0; i < description->n_layers; i++) {
        if (i < layering->n)
            set_layer(layering, i, &layers[i]);
        else
            set_draft(layering, i, &layers[i]);
        if (layers[i].heads > description->heads)
            description->heads = layers[i].heads;
        if (layers[i].window > description->sliding_window)
            description->sliding_window = layers[i].window;
        if (layers[i].experts)
            description->experts = layers[i].experts;
        if (layers[i].experts)
            description->experts_used = layers[i].experts_used;
    }
    description->layers = layers;
    mt_hf_each(layering->config, MT_HF_intermediate_size, take_ff_length, layering);
    share_caches(layering, layers);
}

int mt_hf_describe(struct mt_model *model, const struct mt_hf_config *config,
                   struct mt_error *error)
{
    struct layering layering = {.config = config, .description = &model->description};
    set_numbers(&model->description, config);
    int code = count_layers(&layering, error);
    if (code)
        return code;
    take_heads(&layering);
    code = check_sizes(&layering, error);
    if (code)
        return code;
    take_ff_lengths(&layering);
    take_shared(&layering);
    layering.types = mt_arena_alloc(&model->arena, layering.n);
    layering.sparse = mt_arena_alloc(&model->arena, layering.n);
    struct mt_model_layer *layers =
        mt_arena_array(&model->arena, model->description.n_layers, sizeof *layers);
    if (!layering.types || !layering.sparse || !layers)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "%s: out of memory", config->path);
    code = choose_types(&layering, error);
    if (code)
        return code;
    choose_sparse(&layering);
    set_recurrences(&layering);
    make_layers(&layering, layers);
    return 0;
}
