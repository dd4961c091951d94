/* SPDX-License-Identifier: MIT */
/* The numbers that the converter's tables speak of, from the description and the config. Knows what
 * the fields of a config mean, not what becomes of them. */
#include <math.h>
#include <memtally/error_code.h>
#include <memtally/units.h>
#include <string.h>

#include "convert.h"
#include "model/hf/build.h"

#define SET(name, number) (convert->values[MT_V_##name] = (number))
#define GET(name)         (convert->values[MT_V_##name])

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A member of an object that is itself a value. */
static struct mt_hf_value member(const struct mt_hf_config *config,
                                 const struct mt_hf_value *object, const char *key)
{
    struct mt_hf_config part = {.path = config->path, .text = config->text};
    part.values[MT_HF_rope_parameters] = *object;
    return mt_hf_entry(&part, MT_HF_rope_parameters, key);
}

/* Newer configs say it apart for layers with a window and without. */
struct mt_hf_value mt_convert_rope_entry(const struct mt_hf_config *config, const char *key)
{
    static const enum mt_hf_field fields[] = {MT_HF_rope_parameters, MT_HF_rope_scaling};
    struct mt_hf_value found = {.number = MT_UNKNOWN};
    for (size_t i = 0; i < 2 && !found.is_there; i++) {
        struct mt_hf_value full = mt_hf_entry(config, fields[i], "full_attention");
        found = full.is_there ? member(config, &full, key) : mt_hf_entry(config, fields[i], key);
    }
    return found;
}

static int take_real(const struct mt_hf_value *value, double *real)
{
    if (!value->is_there || value->token.type != MT_JSON_NUMBER)
        return 0;
    return mt_json_double(&value->token, real) == 0 && isfinite(*real);
}

static int is_text(const struct mt_hf_value *value, const char *text)
{
    return value->is_there && value->token.type == MT_JSON_STRING &&
           mt_json_is(&value->token, text);
}

/* Fields are tried in turn; the first of all is none of them and ends the list. `otherwise` NAN:
 * the key is left out. */
static const struct {
    const char *name;
    double otherwise;
    enum mt_hf_field fields[5];
} reals[] = {
    {"rms_eps",
     1e-6,
     {MT_HF_rms_norm_eps, MT_HF_norm_eps, MT_HF_layer_norm_epsilon, MT_HF_layernorm_epsilon}},
    {"norm_eps",
     1e-5,
     {MT_HF_layer_norm_eps, MT_HF_layer_norm_epsilon, MT_HF_norm_epsilon, MT_HF_norm_eps}},
    {"attention_multiplier", NAN, {MT_HF_attention_multiplier}},
    {"attention_value_scale", NAN, {MT_HF_attention_value_scale}},
    {"routed_scaling_factor", NAN, {MT_HF_routed_scaling_factor}},
    {"logit_scale", 0.0625, {MT_HF_logit_scale}},
    {"logits_scaling", 1, {MT_HF_logits_scaling}},
    {"residual_multiplier", NAN, {MT_HF_residual_multiplier}},
    {"embedding_multiplier", NAN, {MT_HF_embedding_multiplier}},
    {"scale_emb", NAN, {MT_HF_scale_emb}},
    {"final_logit_softcapping", NAN, {MT_HF_final_logit_softcapping}},
    {"attn_logit_softcapping", NAN, {MT_HF_attn_logit_softcapping}},
    {"rope_base_swa",
     NAN,
     {MT_HF_rope_local_base_freq, MT_HF_local_rope_theta, MT_HF_swa_rope_theta}},
};

/* Those that the config says among its rotary positions. */
static int rope_real(const struct mt_convert *convert, const char *name, double *value)
{
    static const struct {
        const char *name, *key;
        double factor;
    } known[] = {{"rope_base", "rope_theta", 1},
                 {"rope_factor", "factor", 1},
                 {"rope_log", "mscale_all_dim", 0.1},
                 {"temperature", "llama_4_scaling_beta", 1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) != 0)
            continue;
        struct mt_hf_value entry = mt_convert_rope_entry(convert->config, known[i].key);
        double said;
        if (!take_real(&entry, &said) &&
            (i || !take_real(&convert->config->values[MT_HF_rope_theta], &said)))
            return 0;
        *value = said * known[i].factor;
        return 1;
    }
    return MT_ENOTFOUND;
}

int mt_convert_real(const struct mt_convert *convert, const char *name, double *value)
{
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        if (strcmp(reals[i].name, name) != 0)
            continue;
        for (const enum mt_hf_field *field = reals[i].fields; *field; field++)
            if (take_real(&convert->config->values[*field], value))
                return 1;
        if (isnan(reals[i].otherwise))
            return 0;
        *value = reals[i].otherwise;
        return 1;
    }
    return rope_real(convert, name, value);
}

/* How much of a head turns, rounded down to whole numbers. */
static uint64_t rotary_width(const struct mt_convert *convert, uint64_t head)
{
    static const enum mt_hf_field fields[] = {MT_HF_partial_rotary_factor, MT_HF_rotary_pct,
                                              MT_HF_rope_pct};
    const struct mt_hf_config *config = convert->config;
    struct mt_hf_value entry = mt_convert_rope_entry(config, "partial_rotary_factor");
    double share = convert->family->rotary_share;
    int said = take_real(&entry, &share);
    for (size_t i = 0; i < 3 && !said; i++)
        said = take_real(&config->values[fields[i]], &share);
    return share > 0 && share <= 1 ? (uint64_t)(share * (double)head) : head;
}

static void set_rope(struct mt_convert *convert)
{
    const struct mt_hf_config *config = convert->config;
    struct mt_hf_value type = mt_convert_rope_entry(config, "rope_type");
    struct mt_hf_value original = mt_convert_rope_entry(config, "original_max_position_embeddings");
    if (!type.is_there)
        type = mt_convert_rope_entry(config, "type");
    SET(linear_rope, (uint64_t)is_text(&type, "linear"));
    SET(yarn_rope, (uint64_t)is_text(&type, "yarn"));
    SET(long_rope, (uint64_t)(is_text(&type, "longrope") || is_text(&type, "su")));
    SET(llama3_rope, (uint64_t)is_text(&type, "llama3"));
    SET(rope_original, original.number != MT_UNKNOWN ? original.number : 0);
    SET(rot, rotary_width(convert, GET(key_full)));
    SET(rope_swa, GET(key_swa));
}

static int count_one(void *to, size_t index, const struct mt_json_token *value)
{
    (void)value;
    *(uint64_t *)to = index + 1;
    return 0;
}

static uint64_t count_deepstack(const struct mt_hf_config *config)
{
    struct mt_hf_config part = {.path = config->path, .text = config->text};
    uint64_t n = 0;
    part.values[MT_HF_layer_types] =
        mt_hf_entry(config, MT_HF_vision_config, "deepstack_visual_indexes");
    mt_hf_each(&part, MT_HF_layer_types, count_one, &n);
    return n;
}

static uint64_t gating(const struct mt_hf_config *config)
{
    static const enum mt_hf_field fields[] = {MT_HF_score_function, MT_HF_scoring_func,
                                              MT_HF_moe_router_activation_func,
                                              MT_HF_expert_selection_fn};
    enum { SOFTMAX = 1, SIGMOID = 2 };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (mt_hf_is(config, fields[i], "sigmoid"))
            return SIGMOID;
        if (mt_hf_is(config, fields[i], "softmax"))
            return SOFTMAX;
    }
    return 0;
}

static void set_experts(struct mt_convert *convert)
{
    const struct mt_hf_config *config = convert->config;
    const struct mt_model_description *d = convert->description;
    struct mt_hf_value method = mt_hf_entry(config, MT_HF_quantization_config, "quant_method");
    SET(experts, d->experts);
    SET(experts_used, d->experts_used);
    SET(dense_lead, d->leading_dense_layers);
    SET(shared_n, MT_HF_FIRST(config, MT_HF_n_shared_experts, MT_HF_num_shared_experts));
    SET(moe_step, MT_HF_FIRST(config, MT_HF_interleave_moe_layer_step));
    SET(exp_groups, mt_hf_number(config, MT_HF_n_group, 0));
    SET(exp_groups_used, mt_hf_number(config, MT_HF_topk_group, 0));
    SET(norm_experts, mt_hf_number(config, MT_HF_norm_topk_prob, 0) == 1);
    SET(gating, gating(config));
    SET(mxfp4, (uint64_t)is_text(&method, "mxfp4"));
    SET(router_bias, (config->family->traits & MT_HF_ROUTER_BIAS) != 0 ||
                         mt_hf_number(config, MT_HF_use_expert_bias, 0));
    uint64_t latent = MT_HF_FIRST(config, MT_HF_moe_latent_size, MT_HF_routed_expert_hidden_size);
    SET(latent, latent && latent < d->embedding_length ? latent : d->embedding_length);
}

static void set_recurrence(struct mt_convert *convert)
{
    const struct mt_hf_config *config = convert->config;
    const struct mt_model_description *d = convert->description;
    unsigned traits = config->family->traits;
    SET(conv, d->conv_kernel);
    SET(inner, d->inner_size);
    SET(state, d->state_size);
    SET(rank, d->time_step_rank);
    SET(groups, traits & MT_HF_MAMBA ? 0 : d->group_count);
    SET(lcache, d->short_conv_cache);
    SET(interval, mt_hf_number(config, MT_HF_full_attention_interval, 4));
    SET(conv_bias, mt_hf_number(config, MT_HF_mamba_conv_bias, 1) &&
                       mt_hf_number(config, MT_HF_use_conv_bias, 1));
    if (traits & MT_HF_MAMBA)
        SET(mamba_norm, !!(traits & MT_HF_BARE_MAMBA_NORMS));
    else
        SET(mamba_norm, !(traits & MT_HF_BOTH) || mt_hf_number(config, MT_HF_mamba_rms_norm, 0));
}

static void set_flags(struct mt_convert *convert)
{
    const struct mt_hf_config *config = convert->config;
    const struct mt_hf_build build = {.config = config, .description = convert->description};
    SET(one, 1);
    SET(norms, config->family->norms);
    SET(qkv_bias, (uint64_t)mt_hf_attention_bias(&build));
    SET(out_bias, (uint64_t)mt_hf_output_bias(&build));
    SET(mlp_bias, (uint64_t)mt_hf_mlp_bias(&build));
    SET(qk_norm, MT_HF_FIRST(config, MT_HF_use_qk_norm, MT_HF_qk_layernorm) == 1);
    SET(new_decoder, mt_hf_number(config, MT_HF_new_decoder_architecture, 0) == 1);
    SET(parallel, mt_hf_number(config, MT_HF_use_parallel_residual, 0) == 1);
    SET(positions,
        config->family->traits & MT_HF_POSITIONS ? convert->description->context_length : 0);
    SET(types, mt_hf_number(config, MT_HF_type_vocab_size, 0));
}

/* What layers have in common, or the most of any. */
static void set_all_layers(struct mt_convert *convert)
{
    const struct mt_model_description *d = convert->description;
    for (uint64_t i = 0; i < d->n_layers; i++) {
        const struct mt_model_layer *layer = &d->layers[i];
        int slides = layer->attention == MT_ATTENTION_SLIDING;
        if (layer->key_size && !slides && !GET(key_full)) {
            SET(key_full, layer->key_size);
            SET(value_full, layer->value_size);
        }
        if (slides && !GET(key_swa))
            SET(key_swa, layer->key_size);
        SET(exp_ff_all, most(GET(exp_ff_all), layer->expert_ff_length));
        SET(shared_ff_all, most(GET(shared_ff_all), layer->shared_ff_length));
        SET(recurs_any, GET(recurs_any) || layer->recurrence != MT_RECURRENCE_NONE);
    }
    for (uint64_t i = 0; i < d->n_layers && !GET(value_full); i++)
        SET(value_full, d->layers[i].value_size);
    if (!GET(key_full))
        SET(key_full, GET(key_swa));
    if (!GET(key_full) && d->heads) { /* an encoder keeps nothing, but has heads */
        SET(key_full, d->embedding_length / d->heads);
        SET(value_full, GET(key_full));
    }
    if (!GET(key_swa))
        SET(key_swa, GET(key_full));
}

static void set_latent(struct mt_convert *convert)
{
    const struct mt_model_description *d = convert->description;
    SET(q_lora, d->q_lora_rank);
    SET(kv_lora, d->kv_lora_rank);
    SET(rope, d->qk_rope_head_size);
    SET(nope, d->qk_nope_head_size);
    SET(mla_value, d->value_head_size);
    SET(idx_heads, d->indexer_heads);
    SET(idx_size, d->indexer_head_size);
    SET(idx_top_k, d->indexer_top_k);
}

void mt_convert_set_model(struct mt_convert *convert)
{
    const struct mt_model_description *d = convert->description;
    memset(convert->values, 0, sizeof convert->values);
    SET(embd, d->embedding_length);
    SET(vocab, d->vocabulary);
    SET(context, d->context_length);
    SET(all_heads, d->heads);
    SET(tied, d->tied_output != 0);
    SET(window, d->sliding_window);
    SET(layers, d->n_layers);
    SET(drafts, d->n_draft_layers);
    SET(ple, d->per_layer_embedding_length);
    SET(altup, d->altup_inputs);
    SET(laurel, mt_hf_number(convert->config, MT_HF_laurel_rank, 0));
    SET(shared_kv, mt_hf_number(convert->config, MT_HF_num_kv_shared_layers, 0));
    SET(deepstack, count_deepstack(convert->config));
    set_latent(convert);
    set_all_layers(convert);
    set_experts(convert);
    set_recurrence(convert);
    set_flags(convert);
    set_rope(convert);
}

/* The feed-forward of the config, where the layer at hand has none. */
static uint64_t usual_ff_length(const struct mt_convert *convert)
{
    uint64_t length = MT_HF_FIRST(convert->config, MT_HF_intermediate_size_mlp, MT_HF_n_inner,
                                  MT_HF_ffn_hidden_size, MT_HF_ffn_dim, MT_HF_intermediate_size);
    return length ? length : GET(exp_ff_all);
}

static uint64_t usual_kv_heads(const struct mt_convert *convert)
{
    const struct mt_model_description *d = convert->description;
    uint64_t n = 0;
    for (uint64_t i = 0; i < d->n_layers && !n; i++)
        n = d->layers[i].kv_heads;
    return n;
}

static void set_attention(struct mt_convert *convert, const struct mt_model_layer *layer,
                          uint64_t index)
{
    const struct mt_hf_config *config = convert->config;
    const struct mt_hf_build build = {.config = config, .description = convert->description};
    int encodes = convert->description->is_embedder;
    int slides = layer->attention == MT_ATTENTION_SLIDING;
    int has_keys = layer->cache_layer == index || (config->family->traits & MT_HF_GEMMA3N);
    int full_shares = (config->family->traits & MT_HF_GEMMA4) &&
                      layer->attention == MT_ATTENTION_GLOBAL &&
                      mt_hf_number(config, MT_HF_attention_k_eq_v, 0);
    SET(attends, encodes || layer->attention != MT_ATTENTION_NONE);
    SET(heads, layer->heads);
    SET(kv, encodes ? layer->heads : layer->kv_heads);
    SET(kv_any, GET(kv) ? GET(kv) : usual_kv_heads(convert));
    SET(key, encodes ? GET(key_full) : layer->key_size);
    SET(value, encodes ? GET(value_full) : layer->value_size);
    SET(sliding, (uint64_t)slides);
    SET(keys_here, (uint64_t)has_keys);
    SET(values_here, has_keys && !full_shares);
    SET(sinks_here, (config->family->traits & MT_HF_SINKS) != 0 && layer->heads &&
                        (config->family->period || slides));
    SET(idx_here, GET(attends) && mt_hf_has_indexer(&build, index));
}

void mt_convert_set_layer(struct mt_convert *convert, uint64_t index)
{
    const struct mt_model_layer *layer = &convert->description->layers[index];
    set_attention(convert, layer, index);
    SET(first, index == 0);
    SET(draft, layer->is_draft != 0);
    SET(recurs, layer->recurrence != MT_RECURRENCE_NONE);
    SET(ff, layer->ff_length);
    SET(ff_any, layer->ff_length ? layer->ff_length : usual_ff_length(convert));
    SET(experts_here, layer->experts);
    SET(exp_ff, layer->expert_ff_length);
    SET(shared_ff, layer->shared_ff_length);
}
