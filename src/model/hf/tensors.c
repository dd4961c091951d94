/* SPDX-License-Identifier: MIT */
/* The tensors that a config.json implies: what surrounds the layers, norms and feed-forwards. Names
 * are those of the checkpoints; the experts of a layer are one tensor for each projection. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build.h"

#include "base/error.h"
#include "base/out_of_memory.h"

int mt_hf_trait(const struct mt_hf_build *build, unsigned trait)
{
    return (build->config->family->traits & trait) != 0;
}

static void fail_once(struct mt_hf_build *build, int code)
{
    if (!build->code)
        build->code = code;
}

void mt_hf_count(struct mt_hf_build *build, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t n;
    if (__builtin_mul_overflow(a, b, &n) || __builtin_mul_overflow(n, c, &n) ||
        __builtin_add_overflow(build->parameters, n, &build->parameters))
        fail_once(build, MT_ELIMIT);
}

static int place(struct mt_hf_build *build, struct mt_st_tensor *tensor, const uint64_t *dims)
{
    uint64_t elements;
    int code = mt_st_elements(dims, tensor->n_dims, &elements);
    if (!code)
        code = mt_st_type_bytes((enum mt_st_type)tensor->type, elements, &tensor->bytes);
    tensor->offset = build->offset;
    if (!code && __builtin_add_overflow(build->offset, tensor->bytes, &build->offset))
        code = MT_ELIMIT;
    return code;
}

void mt_hf_add(struct mt_hf_build *build, const char *name, enum mt_st_type type,
               const uint64_t *dims, unsigned n_dims)
{
    struct mt_arena *arena = &build->list->arena;
    struct mt_st_tensor tensor = {.type = (uint8_t)type, .n_dims = (uint8_t)n_dims};
    int code = build->code ? build->code : place(build, &tensor, dims);
    if (!code) {
        size_t prefix = strlen(build->prefix);
        size_t length = strlen(name);
        char *text = mt_arena_alloc(arena, prefix + length);
        uint64_t *copy = mt_arena_array(arena, n_dims, sizeof *copy);
        if (!text || !copy) {
            fail_once(build, MT_ENOMEM);
            return;
        }
        memcpy(text, build->prefix, prefix);
        memcpy(text + prefix, name, length);
        memcpy(copy, dims, n_dims * sizeof *copy);
        tensor.name = text;
        tensor.name_length = (uint16_t)(prefix + length);
        tensor.dims = copy;
        code = mt_st_list_add(build->list, &tensor);
    }
    if (code)
        fail_once(build, code);
}

void mt_hf_vector(struct mt_hf_build *build, const char *name, uint64_t n)
{
    if (!n)
        return;
    mt_hf_count(build, n, 1, 1);
    if (build->list)
        mt_hf_add(build, name, build->type, &n, 1);
}

void mt_hf_matrix(struct mt_hf_build *build, const char *name, uint64_t out, uint64_t in)
{
    const uint64_t dims[] = {out, in};
    if (!out || !in)
        return;
    mt_hf_count(build, 1, out, in);
    if (build->list)
        mt_hf_add(build, name, build->type, dims, 2);
}

void mt_hf_norm(struct mt_hf_build *build, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    mt_hf_vector(build, text, build->description->embedding_length);
    snprintf(text, sizeof text, "%s.bias", name);
    if (mt_hf_trait(build, MT_HF_NORM_BIAS))
        mt_hf_vector(build, text, build->description->embedding_length);
}

static void add_norms(struct mt_hf_build *build)
{
    static const char *const names[] = {"input_layernorm", "post_attention_layernorm",
                                        "pre_feedforward_layernorm", "post_feedforward_layernorm"};
    unsigned n = build->config->family->norms;
    /* Falcon's newer layers have a norm for each of their two branches; ModernBERT's first layer
     * takes the embedding's. */
    if (mt_hf_number(build->config, MT_HF_new_decoder_architecture, 0))
        n = 2;
    for (unsigned i = 0; i < n; i++)
        mt_hf_norm(build, names[i]);
}

int mt_hf_mlp_bias(const struct mt_hf_build *build)
{
    return mt_hf_trait(build, MT_HF_ALL_BIAS) ||
           MT_HF_FIRST(build->config, MT_HF_mlp_bias, MT_HF_bias) == 1;
}

static void add_mlp(struct mt_hf_build *build, const char *name, uint64_t length)
{
    uint64_t hidden = build->description->embedding_length;
    char text[64];
    int bias = mt_hf_mlp_bias(build);
    snprintf(text, sizeof text, "%s.gate_proj", name);
    if (!mt_hf_trait(build, MT_HF_PLAIN_MLP))
        mt_hf_linear(build, text, length, hidden, bias);
    snprintf(text, sizeof text, "%s.up_proj", name);
    mt_hf_linear(build, text, length, hidden, bias);
    snprintf(text, sizeof text, "%s.down_proj", name);
    mt_hf_linear(build, text, hidden, length, bias);
}

static void add_expert_biases(struct mt_hf_build *build, const struct mt_model_layer *layer)
{
    uint64_t hidden = build->description->embedding_length;
    mt_hf_vector(build, "mlp.router.bias", layer->experts);
    mt_hf_matrix(build, "mlp.experts.gate_up_proj_bias", layer->experts,
                 2 * layer->expert_ff_length);
    mt_hf_matrix(build, "mlp.experts.down_proj_bias", layer->experts, hidden);
}

/* Latent experts work on fewer dimensions than the model. */
static uint64_t expert_width(struct mt_hf_build *build)
{
    uint64_t hidden = build->description->embedding_length;
    uint64_t latent =
        MT_HF_FIRST(build->config, MT_HF_moe_latent_size, MT_HF_routed_expert_hidden_size);
    if (!latent)
        return hidden;
    mt_hf_linear(build, "mlp.fc1_latent_proj", latent, hidden, 0);
    mt_hf_linear(build, "mlp.fc2_latent_proj", hidden, latent, 0);
    return latent;
}

static void add_router(struct mt_hf_build *build, const struct mt_model_layer *layer)
{
    uint64_t hidden = build->description->embedding_length;
    uint64_t n = layer->experts;
    mt_hf_matrix(build, "mlp.gate.weight", n, hidden);
    if (mt_hf_trait(build, MT_HF_ROUTER_BIAS) ||
        mt_hf_number(build->config, MT_HF_use_expert_bias, 0)) {
        mt_hf_count(build, n, 1, 1);
        if (build->list)
            mt_hf_add(build, "mlp.gate.e_score_correction_bias", MT_ST_F32, &n, 1);
    }
    if (mt_hf_trait(build, MT_HF_GEMMA4)) {
        mt_hf_vector(build, "router.scale", hidden);
        mt_hf_vector(build, "router.per_expert_scale", n);
        mt_hf_norm(build, "post_feedforward_layernorm_1");
        mt_hf_norm(build, "post_feedforward_layernorm_2");
        mt_hf_norm(build, "pre_feedforward_layernorm_2");
    }
}

/* Gemma 4 has its experts beside the feed-forward, not within. */
static void add_expert_matrix(struct mt_hf_build *build, const struct mt_model_layer *layer,
                              const char *name, uint64_t out, uint64_t in)
{
    char text[64];
    snprintf(text, sizeof text, "%sexperts.%s", mt_hf_trait(build, MT_HF_GEMMA4) ? "" : "mlp.",
             name);
    mt_hf_experts(build, text, layer->experts, out, in);
}

static void add_experts(struct mt_hf_build *build, const struct mt_model_layer *layer)
{
    uint64_t width = expert_width(build);
    add_router(build, layer);
    if (!mt_hf_trait(build, MT_HF_PLAIN_MLP))
        add_expert_matrix(build, layer, "gate_proj", layer->expert_ff_length, width);
    add_expert_matrix(build, layer, "up_proj", layer->expert_ff_length, width);
    add_expert_matrix(build, layer, "down_proj", width, layer->expert_ff_length);
    if (mt_hf_trait(build, MT_HF_EXPERT_BIAS))
        add_expert_biases(build, layer);
    if (layer->shared_ff_length)
        add_mlp(build, "mlp.shared_experts", layer->shared_ff_length);
    if (layer->shared_ff_length && mt_hf_trait(build, MT_HF_SHARED_GATE))
        mt_hf_matrix(build, "mlp.shared_expert_gate.weight", 1,
                     build->description->embedding_length);
}

/* Gemma's second embedding reaches into every layer. */
static void add_per_layer_input(struct mt_hf_build *build)
{
    uint64_t hidden = build->description->embedding_length;
    uint64_t length = build->description->per_layer_embedding_length;
    if (!mt_hf_trait(build, MT_HF_GEMMA3N | MT_HF_GEMMA4) || !length)
        return;
    mt_hf_linear(build, "per_layer_input_gate", length, hidden, 0);
    mt_hf_linear(build, "per_layer_projection", hidden, length, 0);
    mt_hf_norm(build, "post_per_layer_input_norm");
}

static void add_altup(struct mt_hf_build *build)
{
    uint64_t hidden = build->description->embedding_length;
    uint64_t n = build->description->altup_inputs;
    uint64_t rank = mt_hf_number(build->config, MT_HF_laurel_rank, 0);
    mt_hf_vector(build, "altup.correct_output_scale", hidden);
    mt_hf_matrix(build, "altup.correction_coefs.weight", n, n);
    mt_hf_matrix(build, "altup.prediction_coefs.weight", n * n, n);
    mt_hf_matrix(build, "altup.modality_router.weight", n, hidden);
    mt_hf_norm(build, "altup.router_norm");
    mt_hf_linear(build, "laurel.linear_left", rank, hidden, 0);
    mt_hf_linear(build, "laurel.linear_right", hidden, rank, 0);
    mt_hf_norm(build, "laurel.post_laurel_norm");
}

/* Streams of the hyper-connections of DeepSeek V4: their mixing for both halves of a layer. */
static void add_hyper_connections(struct mt_hf_build *build)
{
    uint64_t streams = mt_hf_number(build->config, MT_HF_hc_mult, 0);
    uint64_t mixes = (2 + streams) * streams;
    uint64_t width = streams * build->description->embedding_length;
    static const char *const halves[] = {"attn", "ffn"};
    for (int i = 0; i < 2; i++) {
        char text[64];
        snprintf(text, sizeof text, "hc_%s_fn", halves[i]);
        mt_hf_matrix(build, text, mixes, width);
        snprintf(text, sizeof text, "hc_%s_base", halves[i]);
        mt_hf_vector(build, text, mixes);
        snprintf(text, sizeof text, "hc_%s_scale", halves[i]);
        mt_hf_vector(build, text, 3);
    }
}

/* A draft layer takes the hidden state and the next token's embedding together. */
static void add_draft(struct mt_hf_build *build)
{
    uint64_t hidden = build->description->embedding_length;
    mt_hf_norm(build, "enorm");
    mt_hf_norm(build, "hnorm");
    mt_hf_matrix(build, "eh_proj.weight", hidden, 2 * hidden);
    mt_hf_norm(build, "shared_head.norm");
    if (!mt_hf_trait(build, MT_HF_DRAFT_HEAD))
        return;
    mt_hf_matrix(build, "embed_tokens.weight", build->description->vocabulary, hidden);
    mt_hf_matrix(build, "shared_head.head.weight", build->description->vocabulary, hidden);
}

static void add_layer(struct mt_hf_build *build, const struct mt_model_layer *layer, uint64_t i)
{
    snprintf(build->prefix, sizeof build->prefix, "model.layers.%llu.", (unsigned long long)i);
    build->layer = (uint32_t)i;
    add_norms(build);
    mt_hf_mixers(build, layer, i);
    if (layer->ff_length)
        add_mlp(build, "mlp", layer->ff_length);
    if (layer->experts)
        add_experts(build, layer);
    add_per_layer_input(build);
    if (mt_hf_trait(build, MT_HF_GEMMA3N))
        add_altup(build);
    if (mt_hf_trait(build, MT_HF_DEEPSEEK4))
        add_hyper_connections(build);
    if (layer->is_draft)
        add_draft(build);
}

static void add_gemma_inputs(struct mt_hf_build *build)
{
    const struct mt_model_description *d = build->description;
    uint64_t all = d->n_layers * d->per_layer_embedding_length;
    if (!mt_hf_trait(build, MT_HF_GEMMA3N | MT_HF_GEMMA4) || !d->per_layer_embedding_length)
        return;
    mt_hf_matrix(build, "embed_tokens_per_layer.weight",
                 mt_hf_number(build->config, MT_HF_vocab_size_per_layer_input, 0), all);
    mt_hf_linear(build, "per_layer_model_projection", all, d->embedding_length, 0);
    mt_hf_vector(build, "per_layer_projection_norm.weight", d->per_layer_embedding_length);
    for (uint64_t i = 1; mt_hf_trait(build, MT_HF_GEMMA3N) && i < d->altup_inputs && i < 64; i++) {
        mt_hf_matrix(build, "altup_projections.weight", d->embedding_length, d->embedding_length);
        mt_hf_matrix(build, "altup_unembed_projections.weight", d->embedding_length,
                     d->embedding_length);
    }
}

static void add_inputs(struct mt_hf_build *build)
{
    const struct mt_model_description *d = build->description;
    uint64_t positions = d->context_length;
    mt_hf_matrix(build, "embed_tokens.weight", d->vocabulary, d->embedding_length);
    if (mt_hf_trait(build, MT_HF_POSITIONS))
        mt_hf_matrix(build, "embed_positions.weight", positions, d->embedding_length);
    if (mt_hf_trait(build, MT_HF_EMBEDDER) && mt_hf_number(build->config, MT_HF_type_vocab_size, 0))
        mt_hf_matrix(build, "embeddings.token_type.weight",
                     mt_hf_number(build->config, MT_HF_type_vocab_size, 0), d->embedding_length);
    if (mt_hf_trait(build, MT_HF_EMBEDDER | MT_HF_EMBEDDING_NORM))
        mt_hf_norm(build, "embeddings.norm");
    add_gemma_inputs(build);
}

static void add_outputs(struct mt_hf_build *build)
{
    const struct mt_model_description *d = build->description;
    uint64_t streams = mt_hf_number(build->config, MT_HF_hc_mult, 0);
    if (!d->is_embedder && build->config->family->norms)
        mt_hf_norm(build, "norm");
    if (mt_hf_trait(build, MT_HF_DEEPSEEK4)) {
        mt_hf_matrix(build, "hc_head_fn", streams, streams * d->embedding_length);
        mt_hf_vector(build, "hc_head_base", streams);
        mt_hf_vector(build, "hc_head_scale", 1);
    }
    build->prefix[0] = '\0';
    if (mt_hf_trait(build, MT_HF_POSITIONS) &&
        mt_hf_number(build->config, MT_HF_type_vocab_size, 0))
        mt_hf_linear(build, "pooler.dense", d->embedding_length, d->embedding_length, 1);
    if (!d->tied_output && !d->is_embedder)
        mt_hf_linear(build, "lm_head", d->vocabulary, d->embedding_length,
                     mt_hf_trait(build, MT_HF_OUTPUT_BIAS) ||
                         mt_hf_number(build->config, MT_HF_lm_head_bias, 0));
}

static void add_all(struct mt_hf_build *build)
{
    const struct mt_model_description *d = build->description;
    strcpy(build->prefix, "model.");
    build->layer = MT_NO_LAYER;
    add_inputs(build);
    for (uint64_t i = 0; i < d->n_layers && !build->code; i++)
        add_layer(build, &d->layers[i], i);
    strcpy(build->prefix, "model.");
    build->layer = MT_NO_LAYER;
    add_outputs(build);
}

static int note_type(struct mt_hf_build *build, const struct mt_hf_value *said)
{
    if (!build->list)
        return 0;
    if (!said)
        return mt_model_note(build->model,
                             "config.json does not say what type the weights have: memtally "
                             "assumes %s.",
                             mt_st_type_name(build->type));
    return mt_model_note(build->model,
                         "config.json says that the weights are of a type that memtally does not "
                         "know, %.*s: it assumes %s.",
                         mt_hf_shown_length(&said->token), said->token.text,
                         mt_st_type_name(build->type));
}

static int choose_type(struct mt_hf_build *build)
{
    const struct mt_hf_config *config = build->config;
    static const enum mt_hf_field fields[] = {MT_HF_dtype, MT_HF_torch_dtype};
    const struct mt_hf_value *said = NULL;
    for (int i = 0; i < 2; i++) {
        if (!said && config->values[fields[i]].is_there)
            said = &config->values[fields[i]];
        if (mt_hf_is(config, fields[i], "float32"))
            build->type = MT_ST_F32;
        else if (mt_hf_is(config, fields[i], "float16"))
            build->type = MT_ST_F16;
        else if (mt_hf_is(config, fields[i], "bfloat16"))
            build->type = MT_ST_BF16;
        else
            continue;
        return 0;
    }
    /* Configurations from before there was such a field are of models that were stored so. */
    build->type = mt_hf_trait(build, MT_HF_ALL_BIAS) ? MT_ST_F32 : MT_ST_BF16;
    return note_type(build, said);
}

static int take_ratio(void *to, size_t index, const struct mt_json_token *value)
{
    struct mt_hf_build *build = to;
    if (index >= build->description->n_layers)
        return 1;
    if (mt_json_u64(value, &build->ratios[index]) || build->ratios[index] > MT_HF_NUMBER_MAX)
        build->ratios[index] = 0;
    return 0;
}

/* What layers do where the config is silent: 128 to 1 at first, then 4 and 128 in turn. */
static int read_ratios(struct mt_hf_build *build)
{
    uint64_t n = build->description->n_layers;
    if (!mt_hf_trait(build, MT_HF_DEEPSEEK4))
        return 0;
    build->ratios = mt_arena_array(&build->model->arena, n, sizeof *build->ratios);
    if (!build->ratios)
        return MT_ENOMEM;
    for (uint64_t i = 0; i < n; i++)
        build->ratios[i] = i < 2 || i % 2 == 0 ? 128 : 4;
    mt_hf_each(build->config, MT_HF_compress_ratios, take_ratio, build);
    return mt_model_note(build->model, "Beside the tokens of the window this family keeps "
                                       "compressed ones of all past tokens, which the layers here "
                                       "do not show.");
}

static int build_list(struct mt_hf_build *build, struct mt_error *error)
{
    int code = choose_type(build);
    if (!code)
        code = read_ratios(build);
    if (!code)
        code = mt_hf_quantization(build, error);
    if (!code) {
        add_all(build);
        code = build->code;
    }
    if (code == MT_ENOMEM)
        return mt_fail(error, code, MT_NO_OFFSET, "%s: out of memory", build->config->path);
    if (code == MT_ELIMIT)
        return mt_fail(error, code, MT_NO_OFFSET,
                       "%s: the shapes give tensors of more than 2^64 bytes", build->config->path);
    return code;
}

int mt_hf_derive(struct mt_model *model, const struct mt_hf_config *config, int only_count,
                 struct mt_error *error)
{
    struct mt_hf_build build = {
        .model = model, .config = config, .description = &model->description};
    if (!only_count) {
        build.list = calloc(1, sizeof *build.list);
        if (!build.list)
            return mt_out_of_memory_for(error, config->path);
    }
    int code = build_list(&build, error);
    if (code) {
        mt_st_list_free(build.list);
        return code;
    }
    /* Elements are parameters unless weights are packed; only what is derived knows better. */
    if (build.list || build.packing != build.expert_packing || build.packing != MT_HF_UNPACKED)
        model->description.parameters = build.parameters;
    if (build.list)
        mt_st_list_give(build.list, model);
    return 0;
}
