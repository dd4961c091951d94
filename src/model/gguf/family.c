/* SPDX-License-Identifier: MIT */
/* The families. Names are llama.cpp's; what stands here is what its loader sets for them. */
#include "family.h"

#include <string.h>

#define WINDOW(rule, layers, tokens)                                                               \
    .window = MT_WINDOW_##rule, .period = (layers), .default_window = (tokens)
#define RECURS(rule, kind) .recurs = MT_RECURS_##rule, .recurrence = MT_RECURRENCE_##kind
#define TRAITS(bits)       .traits = (bits)

#define LATENT    MT_FAMILY_LATENT
#define SECTIONS  MT_FAMILY_SECTIONS
#define ENCODER   (MT_FAMILY_NO_CACHE | MT_FAMILY_EMBEDDER)
#define DIFFUSION MT_FAMILY_NO_CACHE

/* clang-format off */
static const struct mt_family families[] = {
    /* Nothing but global attention. */
    {"llama"}, {"deci"}, {"falcon"}, {"grok"}, {"gpt2"}, {"gptj"}, {"gptneox"}, {"mpt"},
    {"baichuan"}, {"starcoder"}, {"refact"}, {"bloom"}, {"stablelm"}, {"qwen"}, {"qwen2"},
    {"qwen2moe"}, {"qwen3"}, {"qwen3moe"}, {"phi2"}, {"phimoe"}, {"plamo"}, {"codeshell"},
    {"orion"}, {"internlm2"}, {"minicpm"}, {"minicpm3"}, {"gemma"}, {"starcoder2"}, {"xverse"},
    {"command-r"}, {"dbrx"}, {"olmo"}, {"olmoe"}, {"openelm"}, {"arctic"}, {"deepseek"},
    {"chatglm"}, {"bitnet"}, {"jais"}, {"jais2"}, {"nemotron"}, {"exaone"}, {"granite"},
    {"granitemoe"}, {"chameleon"}, {"plm"}, {"bailingmoe"}, {"bailingmoe2"}, {"dots1"}, {"arcee"},
    {"ernie4_5"}, {"ernie4_5-moe"}, {"hunyuan-moe"}, {"hunyuan-dense"}, {"smollm3"}, {"seed_oss"},
    {"grovemoe"}, {"apertus"}, {"minimax-m2"}, {"cogvlm"}, {"pangu-embedded"}, {"mistral3"},
    {"hy_v3"}, {"maincoder"}, {"llama-embed"},
    {"phi3", WINDOW(NEVER, 0, 0)}, /* llama.cpp keeps all tokens, whatever the file says */

    /* Positions in sections. */
    {"qwen2vl", TRAITS(SECTIONS)},
    {"qwen3vl", TRAITS(SECTIONS)},
    {"qwen3vlmoe", TRAITS(SECTIONS)},
    {"paddleocr", TRAITS(SECTIONS)},
    {"glm4", TRAITS(MT_FAMILY_MAY_SECTION)},
    {"glm4moe", TRAITS(MT_FAMILY_MAY_SECTION)},
    {"hunyuan_vl", TRAITS(MT_FAMILY_MAY_SECTION)},

    /* Windows. */
    {"gemma2", WINDOW(GLOBAL_LAST, 2, 4096)},
    {"gemma3", WINDOW(GLOBAL_LAST, 6, 0)},
    {"gemma3n", WINDOW(GLOBAL_LAST, 5, 0), TRAITS(MT_FAMILY_SHARES_CACHE)},
    {"gemma4", WINDOW(LISTED, 0, 0), TRAITS(MT_FAMILY_SHARES_CACHE)},
    {"gemma4-assistant", WINDOW(LISTED, 0, 0)},
    {"gpt-oss", WINDOW(GLOBAL_LAST, 2, 0)},
    {"cohere2", WINDOW(GLOBAL_LAST, 4, 0)},
    {"cohere2moe", WINDOW(GLOBAL_FIRST, 4, 0)},
    {"olmo2", WINDOW(GLOBAL_LAST, 4, 0)},
    {"exaone4", WINDOW(GLOBAL_LAST, 4, 4096)},
    {"exaone-moe", WINDOW(GLOBAL_LAST, 4, 128)},
    {"llama4", WINDOW(GLOBAL_LAST, 4, 8192), TRAITS(MT_FAMILY_CHUNKED)},
    {"afmoe", WINDOW(GLOBAL_LAST, 4, 0)},
    {"smallthinker", WINDOW(GLOBAL_FIRST, 4, 0)},
    {"laguna", WINDOW(GLOBAL_FIRST, 4, 0)},
    {"mellum", WINDOW(GLOBAL_LAST, 4, 0)},
    {"muse-glimmer", WINDOW(GLOBAL_LAST, 4, 0)},
    {"plamo3", WINDOW(GLOBAL_LAST, 8, 0)},
    {"granite_swa", WINDOW(LISTED, 0, 0)},
    {"mimo2", WINDOW(LISTED, 0, 0)},
    {"step35", WINDOW(LISTED, 0, 0)},
    {"spark2_5", WINDOW(LISTED, 0, 0)},
    {"maple", WINDOW(LISTED, 0, 0)},

    /* Latent attention. */
    {"deepseek2", TRAITS(LATENT)},
    {"deepseek2-ocr"},
    {"deepseek32", TRAITS(LATENT)},
    {"deepseek4", WINDOW(ALWAYS, 0, 0), TRAITS(MT_FAMILY_PARTLY)},
    {"glm-dsa", TRAITS(LATENT)},
    {"mistral4", TRAITS(LATENT)},

    /* Recurrent, wholly or in part. */
    {"mamba", RECURS(ALWAYS, MAMBA)},
    {"mamba2", RECURS(ALWAYS, MAMBA2)},
    {"rwkv6", RECURS(ALWAYS, RWKV)},
    {"rwkv6qwen2", RECURS(ALWAYS, RWKV)},
    {"rwkv7", RECURS(ALWAYS, RWKV)},
    {"arwkv7", RECURS(ALWAYS, RWKV)},
    {"jamba", RECURS(WITHOUT_KV, MAMBA)},
    {"falcon-h1", RECURS(BESIDE, MAMBA2)},
    {"plamo2", RECURS(WITHOUT_KV, MAMBA2)},
    {"granitehybrid", RECURS(WITHOUT_KV, MAMBA2)},
    {"nemotron_h", RECURS(WITHOUT_BOTH, MAMBA2)},
    {"nemotron_h_moe", RECURS(WITHOUT_BOTH, MAMBA2)},
    {"lfm2", WINDOW(ALWAYS, 0, 0), RECURS(WITHOUT_KV, SHORT_CONVOLUTION)},
    {"lfm2moe", RECURS(WITHOUT_KV, SHORT_CONVOLUTION)},
    {"qwen3next", RECURS(BY_INTERVAL, DELTA_NET)},
    {"qwen35", RECURS(BY_INTERVAL, DELTA_NET), TRAITS(SECTIONS)},
    {"qwen35moe", RECURS(BY_INTERVAL, DELTA_NET), TRAITS(SECTIONS)},
    {"kimi-linear", RECURS(WITHOUT_KV, KIMI_DELTA), TRAITS(LATENT)},
    {"kimi-k3", RECURS(WITHOUT_KV, KIMI_DELTA), TRAITS(LATENT)},

    /* No cache at all. */
    {"bert", TRAITS(ENCODER)}, {"nomic-bert", TRAITS(ENCODER)},
    {"nomic-bert-moe", TRAITS(ENCODER)}, {"neo-bert", TRAITS(ENCODER)},
    {"jina-bert-v2", TRAITS(ENCODER)}, {"jina-bert-v3", TRAITS(ENCODER)},
    {"eurobert", TRAITS(ENCODER)},
    {"modern-bert", WINDOW(GLOBAL_FIRST, 3, 0), TRAITS(ENCODER)},
    {"gemma-embedding", WINDOW(GLOBAL_LAST, 6, 0), TRAITS(ENCODER)}, {"t5encoder", TRAITS(ENCODER)},
    {"dream", TRAITS(DIFFUSION)}, {"llada", TRAITS(DIFFUSION)},
    {"llada-moe", TRAITS(DIFFUSION)}, {"rnd1", TRAITS(DIFFUSION)},
};
/* clang-format on */

const struct mt_family *mt_family_of_gguf(const char *architecture)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, architecture) == 0)
            return &families[i];
    return NULL;
}
