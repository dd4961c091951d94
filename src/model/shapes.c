/* SPDX-License-Identifier: MIT */
/* The named shapes: numbers as their makers published them. Knows nothing of files. */
#include <memtally/model.h>

#include <strings.h>

/* clang-format off */
static const struct mt_model_shape shapes[] = {
    {.name = "smollm-135m", .source = "config.json of HuggingFaceTB/SmolLM-135M",
     .architecture = "llama", .layers = 30, .embedding_length = 576, .ff_length = 1536,
     .heads = 9, .kv_heads = 3, .head_size = 64, .vocabulary = 49152, .context_length = 2048,
     .tied_embeddings = 1, .rope_freq_base = 10000, .norm_epsilon = 1e-5},
    {.name = "smollm-360m", .source = "config.json of HuggingFaceTB/SmolLM-360M",
     .architecture = "llama", .layers = 32, .embedding_length = 960, .ff_length = 2560,
     .heads = 15, .kv_heads = 5, .head_size = 64, .vocabulary = 49152, .context_length = 2048,
     .tied_embeddings = 1, .rope_freq_base = 10000, .norm_epsilon = 1e-5},
    {.name = "tinyllama-1.1b", .source = "config.json of TinyLlama/TinyLlama-1.1B-Chat-v1.0",
     .architecture = "llama", .layers = 22, .embedding_length = 2048, .ff_length = 5632,
     .heads = 32, .kv_heads = 4, .head_size = 64, .vocabulary = 32000, .context_length = 2048,
     .rope_freq_base = 10000, .norm_epsilon = 1e-5},
    {.name = "llama-3.2-1b", .source = "config.json of meta-llama/Llama-3.2-1B",
     .architecture = "llama", .layers = 16, .embedding_length = 2048, .ff_length = 8192,
     .heads = 32, .kv_heads = 8, .head_size = 64, .vocabulary = 128256, .context_length = 131072,
     .tied_embeddings = 1, .rope_freq_base = 500000, .rope_llama3_factor = 32,
     .norm_epsilon = 1e-5},
    {.name = "llama-3.2-3b", .source = "config.json of meta-llama/Llama-3.2-3B",
     .architecture = "llama", .layers = 28, .embedding_length = 3072, .ff_length = 8192,
     .heads = 24, .kv_heads = 8, .head_size = 128, .vocabulary = 128256, .context_length = 131072,
     .tied_embeddings = 1, .rope_freq_base = 500000, .rope_llama3_factor = 32,
     .norm_epsilon = 1e-5},
    {.name = "llama-3.1-8b", .source = "config.json of meta-llama/Llama-3.1-8B",
     .architecture = "llama", .layers = 32, .embedding_length = 4096, .ff_length = 14336,
     .heads = 32, .kv_heads = 8, .head_size = 128, .vocabulary = 128256, .context_length = 131072,
     .rope_freq_base = 500000, .rope_llama3_factor = 8, .norm_epsilon = 1e-5},
    {.name = "llama-3.1-70b", .source = "config.json of meta-llama/Llama-3.1-70B",
     .architecture = "llama", .layers = 80, .embedding_length = 8192, .ff_length = 28672,
     .heads = 64, .kv_heads = 8, .head_size = 128, .vocabulary = 128256, .context_length = 131072,
     .rope_freq_base = 500000, .rope_llama3_factor = 8, .norm_epsilon = 1e-5},
    {.name = "llama-2-7b", .source = "config.json of meta-llama/Llama-2-7b-hf",
     .architecture = "llama", .layers = 32, .embedding_length = 4096, .ff_length = 11008,
     .heads = 32, .kv_heads = 32, .head_size = 128, .vocabulary = 32000, .context_length = 4096,
     .rope_freq_base = 10000, .norm_epsilon = 1e-5},
    {.name = "mistral-7b", .source = "config.json of mistralai/Mistral-7B-v0.3",
     .architecture = "llama", .layers = 32, .embedding_length = 4096, .ff_length = 14336,
     .heads = 32, .kv_heads = 8, .head_size = 128, .vocabulary = 32768, .context_length = 32768,
     .rope_freq_base = 1000000, .norm_epsilon = 1e-5},
    {.name = "mixtral-8x7b", .source = "config.json of mistralai/Mixtral-8x7B-v0.1",
     .architecture = "llama", .layers = 32, .embedding_length = 4096, .ff_length = 14336,
     .heads = 32, .kv_heads = 8, .head_size = 128, .vocabulary = 32000, .context_length = 32768,
     .rope_freq_base = 1000000, .norm_epsilon = 1e-5, .experts = 8, .experts_used = 2},
    {.name = "qwen2.5-0.5b", .source = "config.json of Qwen/Qwen2.5-0.5B",
     .architecture = "qwen2", .layers = 24, .embedding_length = 896, .ff_length = 4864,
     .heads = 14, .kv_heads = 2, .head_size = 64, .vocabulary = 151936, .context_length = 32768,
     .tied_embeddings = 1, .rope_freq_base = 1000000, .norm_epsilon = 1e-6},
    {.name = "qwen2.5-7b", .source = "config.json of Qwen/Qwen2.5-7B",
     .architecture = "qwen2", .layers = 28, .embedding_length = 3584, .ff_length = 18944,
     .heads = 28, .kv_heads = 4, .head_size = 128, .vocabulary = 152064, .context_length = 131072,
     .rope_freq_base = 1000000, .norm_epsilon = 1e-6},
    {.name = "qwen3-0.6b", .source = "config.json of Qwen/Qwen3-0.6B",
     .architecture = "qwen3", .layers = 28, .embedding_length = 1024, .ff_length = 3072,
     .heads = 16, .kv_heads = 8, .head_size = 128, .vocabulary = 151936, .context_length = 40960,
     .tied_embeddings = 1, .rope_freq_base = 1000000, .norm_epsilon = 1e-6},
    {.name = "qwen3-4b", .source = "config.json of Qwen/Qwen3-4B",
     .architecture = "qwen3", .layers = 36, .embedding_length = 2560, .ff_length = 9728,
     .heads = 32, .kv_heads = 8, .head_size = 128, .vocabulary = 151936, .context_length = 40960,
     .tied_embeddings = 1, .rope_freq_base = 1000000, .norm_epsilon = 1e-6},
    {.name = "qwen3-8b", .source = "config.json of Qwen/Qwen3-8B",
     .architecture = "qwen3", .layers = 36, .embedding_length = 4096, .ff_length = 12288,
     .heads = 32, .kv_heads = 8, .head_size = 128, .vocabulary = 151936, .context_length = 40960,
     .rope_freq_base = 1000000, .norm_epsilon = 1e-6},
    {.name = "qwen3-30b-a3b", .source = "config.json of Qwen/Qwen3-30B-A3B",
     .architecture = "qwen3moe", .layers = 48, .embedding_length = 2048, .ff_length = 6144,
     .heads = 32, .kv_heads = 4, .head_size = 128, .vocabulary = 151936, .context_length = 40960,
     .rope_freq_base = 1000000, .norm_epsilon = 1e-6, .experts = 128, .experts_used = 8,
     .expert_ff_length = 768},
    /* Gemma's token list is shorter than the padded embedding of its config.json (262208): GGUF
     * files hold the list's 262144 rows. */
    {.name = "gemma-3-1b", .source = "config.json of google/gemma-3-1b-pt",
     .architecture = "gemma3", .layers = 26, .embedding_length = 1152, .ff_length = 6912,
     .heads = 4, .kv_heads = 1, .head_size = 256, .vocabulary = 262144, .context_length = 32768,
     .tied_embeddings = 1, .rope_freq_base = 1000000, .norm_epsilon = 1e-6,
     .sliding_window = 512},
    {.name = "gemma-3-12b", .source = "text_config in config.json of google/gemma-3-12b-pt",
     .architecture = "gemma3", .layers = 48, .embedding_length = 3840, .ff_length = 15360,
     .heads = 16, .kv_heads = 8, .head_size = 256, .vocabulary = 262144, .context_length = 131072,
     .tied_embeddings = 1, .rope_freq_base = 1000000, .rope_linear_factor = 8,
     .norm_epsilon = 1e-6, .sliding_window = 1024},
    {.name = "gemma-3-27b", .source = "text_config in config.json of google/gemma-3-27b-pt",
     .architecture = "gemma3", .layers = 62, .embedding_length = 5376, .ff_length = 21504,
     .heads = 32, .kv_heads = 16, .head_size = 128, .vocabulary = 262144,
     .context_length = 131072, .tied_embeddings = 1, .rope_freq_base = 1000000,
     .rope_linear_factor = 8, .norm_epsilon = 1e-6, .sliding_window = 1024},
    {.name = "deepseek-v2-lite", .source = "config.json of deepseek-ai/DeepSeek-V2-Lite",
     .architecture = "deepseek2", .layers = 27, .embedding_length = 2048, .ff_length = 10944,
     .heads = 16, .vocabulary = 102400, .context_length = 163840, .rope_freq_base = 10000,
     .norm_epsilon = 1e-6, .experts = 64, .experts_used = 6, .experts_shared = 2,
     .expert_ff_length = 1408, .leading_dense_layers = 1, .expert_weights_scale = 1,
     .kv_lora_rank = 512, .qk_rope_head_size = 64, .qk_nope_head_size = 128,
     .value_head_size = 128},
    {.name = "deepseek-v3", .source = "config.json of deepseek-ai/DeepSeek-V3, no MTP layer",
     .architecture = "deepseek2", .layers = 61, .embedding_length = 7168, .ff_length = 18432,
     .heads = 128, .vocabulary = 129280, .context_length = 163840, .rope_freq_base = 10000,
     .norm_epsilon = 1e-6, .experts = 256, .experts_used = 8, .experts_shared = 1,
     .expert_ff_length = 2048, .leading_dense_layers = 3, .expert_weights_scale = 2.5,
     .sigmoid_router = 1, .q_lora_rank = 1536, .kv_lora_rank = 512, .qk_rope_head_size = 64,
     .qk_nope_head_size = 128, .value_head_size = 128},
};
/* clang-format on */

#define N_SHAPES (sizeof shapes / sizeof *shapes)

const struct mt_model_shape *mt_model_shape_at(size_t index)
{
    return index < N_SHAPES ? &shapes[index] : NULL;
}

const struct mt_model_shape *mt_model_shape_by_name(const char *name)
{
    for (size_t i = 0; name && i < N_SHAPES; i++)
        if (strcasecmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}
