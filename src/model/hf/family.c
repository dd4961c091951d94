/* SPDX-License-Identifier: MIT */
/* The families: what llama.cpp calls them, what their layers consist of, and what their config.json
 * may leave out. A config.json that says otherwise than a default is right. */
#include <string.h>

#include "config.h"

/* clang-format off */
#define D(field, number) {MT_HF_##field, number},
#define X(family, ...)                                                                             \
    static const struct mt_hf_default family##_defaults[] = {__VA_ARGS__ {MT_HF_FIELDS, 0}};
#include "defaults.def"
#undef X
#undef D
/* clang-format on */

/* model_type, architecture, norms, period, traits, defaults. */
static const struct mt_hf_family families[] = {
    {"llama", "llama", 2, 0, 0, llama_defaults},
    {"mistral", "llama", 2, 1, 0, mistral_defaults},
    {"ministral", "mistral3", 2, 1, 0, mistral_defaults},
    {"ministral3", "mistral3", 2, 0, 0, ministral3_defaults},
    {"mistral3", "mistral3", 2, 0, 0, mistral_defaults},
    {"mixtral", "llama", 2, 1, 0, mixtral_defaults},
    {"exaone", "exaone", 2, 0, 0, llama_defaults},
    {"minicpm", "minicpm", 2, 0, 0, llama_defaults},
    {"smollm3", "smollm3", 2, 0, 0, smollm3_defaults},
    {"seed_oss", "seed_oss", 2, 0, MT_HF_NO_OUTPUT_BIAS, seed_oss_defaults},
    {"llama4", "llama4", 2, 4, MT_HF_CHUNKED, llama4_defaults},
    {"llama4_text", "llama4", 2, 4, MT_HF_CHUNKED, llama4_defaults},
    {"qwen2", "qwen2", 2, 0, MT_HF_QKV_BIAS | MT_HF_WINDOW_SWITCH, qwen2_defaults},
    {"qwen2_moe", "qwen2moe", 2, 0, MT_HF_QKV_BIAS | MT_HF_WINDOW_SWITCH | MT_HF_SHARED_GATE,
     qwen2_moe_defaults},
    {"qwen2_vl", "qwen2vl", 2, 0, MT_HF_QKV_BIAS | MT_HF_WINDOW_SWITCH, qwen2_vl_defaults},
    {"qwen2_vl_text", "qwen2vl", 2, 0, MT_HF_QKV_BIAS | MT_HF_WINDOW_SWITCH, qwen2_vl_defaults},
    {"qwen2_5_vl", "qwen2vl", 2, 0, MT_HF_QKV_BIAS | MT_HF_WINDOW_SWITCH, qwen2_vl_defaults},
    {"qwen2_5_vl_text", "qwen2vl", 2, 0, MT_HF_QKV_BIAS | MT_HF_WINDOW_SWITCH, qwen2_vl_defaults},
    {"qwen2_5_omni_text", "qwen2vl", 2, 0, MT_HF_QKV_BIAS | MT_HF_WINDOW_SWITCH, qwen2_vl_defaults},
    {"qwen3", "qwen3", 2, 0, MT_HF_QK_NORM | MT_HF_WINDOW_SWITCH, qwen3_defaults},
    {"qwen3_moe", "qwen3moe", 2, 0, MT_HF_QK_NORM | MT_HF_WINDOW_SWITCH, qwen3_moe_defaults},
    {"qwen3_vl", "qwen3vl", 2, 0, MT_HF_QK_NORM, qwen3_defaults},
    {"qwen3_vl_text", "qwen3vl", 2, 0, MT_HF_QK_NORM, qwen3_defaults},
    {"qwen3_vl_moe", "qwen3vlmoe", 2, 0, MT_HF_QK_NORM, qwen3_vl_moe_defaults},
    {"qwen3_vl_moe_text", "qwen3vlmoe", 2, 0, MT_HF_QK_NORM, qwen3_vl_moe_defaults},
    {"qwen3_omni_moe_text", "qwen3vlmoe", 2, 0, MT_HF_QK_NORM, qwen3_moe_defaults},
    {"qwen3_next", "qwen3next", 2, 0,
     MT_HF_QK_NORM | MT_HF_GATED_QUERY | MT_HF_LINEAR_ATTENTION | MT_HF_SHARED_GATE,
     qwen3_next_defaults},
    {"qwen3_5", "qwen35", 2, 0, MT_HF_QK_NORM | MT_HF_GATED_QUERY | MT_HF_LINEAR_ATTENTION,
     qwen3_5_defaults},
    {"qwen3_5_text", "qwen35", 2, 0, MT_HF_QK_NORM | MT_HF_GATED_QUERY | MT_HF_LINEAR_ATTENTION,
     qwen3_5_defaults},
    {"qwen3_5_moe", "qwen35moe", 2, 0,
     MT_HF_QK_NORM | MT_HF_GATED_QUERY | MT_HF_LINEAR_ATTENTION | MT_HF_SHARED_GATE,
     qwen3_5_moe_defaults},
    {"qwen3_5_moe_text", "qwen35moe", 2, 0,
     MT_HF_QK_NORM | MT_HF_GATED_QUERY | MT_HF_LINEAR_ATTENTION | MT_HF_SHARED_GATE,
     qwen3_5_moe_defaults},
    {"gemma", "gemma", 2, 0, 0, gemma_defaults},
    {"gemma2", "gemma2", 4, 2, 0, gemma2_defaults},
    {"gemma3", "gemma3", 4, 6, MT_HF_QK_NORM, gemma3_defaults},
    {"gemma3_text", "gemma3", 4, 6, MT_HF_QK_NORM, gemma3_defaults},
    {"gemma3n", "gemma3n", 4, 5, MT_HF_QK_NORM | MT_HF_GEMMA3N, gemma3n_defaults},
    {"gemma3n_text", "gemma3n", 4, 5, MT_HF_QK_NORM | MT_HF_GEMMA3N, gemma3n_defaults},
    {"gemma4", "gemma4", 4, 6, MT_HF_QK_NORM | MT_HF_GEMMA4, gemma4_defaults},
    {"gemma4_text", "gemma4", 4, 6, MT_HF_QK_NORM | MT_HF_GEMMA4, gemma4_defaults},
    {"gemma4_unified", "gemma4", 4, 6, MT_HF_QK_NORM | MT_HF_GEMMA4, gemma4_unified_defaults},
    {"gemma4_unified_text", "gemma4", 4, 6, MT_HF_QK_NORM | MT_HF_GEMMA4, gemma4_unified_defaults},
    {"gpt_oss", "gpt-oss", 2, 2, MT_HF_SINKS | MT_HF_EXPERT_BIAS, gpt_oss_defaults},
    {"deepseek_v2", "deepseek2", 2, 0, 0, deepseek_v2_defaults},
    {"deepseek_v3", "deepseek2", 2, 0, MT_HF_ROUTER_BIAS | MT_HF_DRAFT_HEAD, deepseek_v3_defaults},
    {"kimi_k2", "deepseek2", 2, 0, MT_HF_ROUTER_BIAS | MT_HF_DRAFT_HEAD, deepseek_v3_defaults},
    {"kimi_k25", "deepseek2", 2, 0, MT_HF_ROUTER_BIAS, deepseek_v3_defaults},
    {"deepseek_v32", "deepseek32", 2, 0, MT_HF_ROUTER_BIAS | MT_HF_DRAFT_HEAD,
     deepseek_v32_defaults},
    {"deepseek_v4", "deepseek4", 2, 0, MT_HF_DEEPSEEK4 | MT_HF_SINKS, deepseek_v4_defaults},
    {"glm", "glm4", 2, 0, MT_HF_NO_OUTPUT_BIAS, glm4_defaults},
    {"glm4", "glm4", 4, 0, MT_HF_NO_OUTPUT_BIAS, glm4_defaults},
    {"glm4_moe", "glm4moe", 2, 0, MT_HF_NO_OUTPUT_BIAS | MT_HF_ROUTER_BIAS | MT_HF_DRAFT_HEAD,
     glm4_moe_defaults},
    {"glm4_moe_lite", "deepseek2", 2, 0, MT_HF_ROUTER_BIAS, glm4_moe_lite_defaults},
    {"glm_moe_dsa", "glm-dsa", 2, 0, MT_HF_ROUTER_BIAS | MT_HF_DRAFT_HEAD, glm_moe_dsa_defaults},
    {"phi", "phi2", 1, 0, MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP | MT_HF_ALL_BIAS | MT_HF_OUTPUT_BIAS,
     phi_defaults},
    {"phi3", "phi3", 2, 1, 0, phi3_defaults},
    {"phi4mm", "phi3", 2, 1, 0, phi3_defaults},
    {"phimoe", "phimoe", 2, 1, MT_HF_NORM_BIAS, phimoe_defaults},
    {"cohere", "command-r", 1, 0, 0, cohere_defaults},
    {"cohere2", "cohere2", 1, 4, 0, cohere2_defaults},
    {"granite", "granite", 2, 0, 0, llama_defaults},
    {"granitemoe", "granitemoe", 2, 0, 0, granitemoe_defaults},
    {"granitemoeshared", "granitemoe", 2, 0, 0, granitemoe_defaults},
    {"granitemoehybrid", "granitehybrid", 2, 0, MT_HF_MAMBA2, granitehybrid_defaults},
    {"bamba", "granitehybrid", 2, 0, MT_HF_MAMBA2, bamba_defaults},
    {"falcon", "falcon", 1, 0, MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP, falcon_defaults},
    {"RefinedWeb", "falcon", 1, 0, MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP, falcon_defaults},
    {"falcon_h1", "falcon-h1", 2, 0, MT_HF_MAMBA2 | MT_HF_BOTH, falcon_h1_defaults},
    {"jamba", "jamba", 2, 0, MT_HF_MAMBA | MT_HF_MAMBA_NORMS, jamba_defaults},
    {"lfm2", "lfm2", 2, 0, MT_HF_QK_NORM | MT_HF_SHORT_CONVOLUTION, lfm2_defaults},
    {"lfm2_moe", "lfm2moe", 2, 0, MT_HF_QK_NORM | MT_HF_SHORT_CONVOLUTION, lfm2_moe_defaults},
    {"mamba", "mamba", 1, 0, MT_HF_MAMBA | MT_HF_ONE_MIXER, mamba_defaults},
    {"falcon_mamba", "mamba", 1, 0, MT_HF_MAMBA | MT_HF_ONE_MIXER, mamba_defaults},
    {"mamba2", "mamba2", 1, 0, MT_HF_MAMBA2 | MT_HF_ONE_MIXER, mamba2_defaults},
    {"kimi_linear", "kimi-linear", 2, 0, MT_HF_KIMI_DELTA | MT_HF_ROUTER_BIAS,
     kimi_linear_defaults},
    {"nemotron", "nemotron", 2, 0, MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP, nemotron_defaults},
    {"nemotron_h", "nemotron_h", 1, 0,
     MT_HF_MAMBA2 | MT_HF_ONE_MIXER | MT_HF_PLAIN_MLP | MT_HF_ROUTER_BIAS, nemotron_h_defaults},
    {"bert", "bert", 2, 0,
     MT_HF_EMBEDDER | MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP | MT_HF_ALL_BIAS | MT_HF_POSITIONS,
     bert_defaults},
    {"roberta", "bert", 2, 0,
     MT_HF_EMBEDDER | MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP | MT_HF_ALL_BIAS | MT_HF_POSITIONS,
     bert_defaults},
    {"xlm-roberta", "bert", 2, 0,
     MT_HF_EMBEDDER | MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP | MT_HF_ALL_BIAS | MT_HF_POSITIONS,
     bert_defaults},
    {"distilbert", "bert", 2, 0,
     MT_HF_EMBEDDER | MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP | MT_HF_ALL_BIAS | MT_HF_POSITIONS,
     distilbert_defaults},
    {"modernbert", "modern-bert", 2, 3, MT_HF_EMBEDDER | MT_HF_FIRST_IS_GLOBAL,
     modernbert_defaults},
    {"nomic_bert", "nomic-bert", 2, 0, MT_HF_EMBEDDER | MT_HF_NORM_BIAS, nomic_bert_defaults},
    {"olmo", "olmo", 0, 0, 0, olmo_defaults},
    {"olmo2", "olmo2", 2, 0, MT_HF_QK_NORM_WIDE, olmo_defaults},
    {"olmo3", "olmo2", 2, 4, MT_HF_QK_NORM_WIDE, olmo3_defaults},
    {"olmoe", "olmoe", 2, 0, MT_HF_QK_NORM_WIDE, olmoe_defaults},
    {"starcoder2", "starcoder2", 2, 1, MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP | MT_HF_ALL_BIAS,
     starcoder2_defaults},
    {"stablelm", "stablelm", 2, 0, MT_HF_NORM_BIAS, stablelm_defaults},
    {"gpt2", "gpt2", 2, 0, MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP | MT_HF_ALL_BIAS | MT_HF_POSITIONS,
     gpt2_defaults},
    {"gpt_neox", "gptneox", 2, 0, MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP | MT_HF_ALL_BIAS,
     gpt_neox_defaults},
    {"bloom", "bloom", 2, 0,
     MT_HF_NORM_BIAS | MT_HF_PLAIN_MLP | MT_HF_ALL_BIAS | MT_HF_EMBEDDING_NORM, bloom_defaults},
    {"exaone4", "exaone4", 2, 4, MT_HF_QK_NORM, exaone4_defaults},
    {"ernie4_5", "ernie4_5", 2, 0, 0, ernie4_5_defaults},
    {"minimax_m2", "minimax-m2", 2, 0, MT_HF_QK_NORM_WIDE | MT_HF_ROUTER_BIAS, minimax_m2_defaults},
    {"mimo_v2_flash", "mimo2", 2, 0, MT_HF_SINKS | MT_HF_ROUTER_BIAS, mimo_defaults},
};

const struct mt_hf_family *mt_hf_family_llama(void)
{
    return &families[0];
}

const struct mt_hf_family *mt_hf_family_find(const char *model_type, size_t length)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strlen(families[i].model_type) == length &&
            memcmp(families[i].model_type, model_type, length) == 0)
            return &families[i];
    }
    return NULL;
}
