/* SPDX-License-Identifier: MIT */
/* What a model file says about itself: names of keys as llama.cpp reads them. */
#include "metadata.h"

#include <stdio.h>

struct writer {
    struct mt_gguf_header *header;
    const char *architecture;
    char key[96];
};

static const char *key(struct writer *writer, const char *name)
{
    snprintf(writer->key, sizeof writer->key, "%s.%s", writer->architecture, name);
    return writer->key;
}

static void put_count(struct writer *writer, const char *name, uint64_t value)
{
    mt_gguf_u32(writer->header, key(writer, name), value);
}

static void put_factor(struct writer *writer, const char *name, double value)
{
    mt_gguf_f32(writer->header, key(writer, name), value);
}

/* The number that stands for "mostly this type" in general.file_type. */
uint64_t mt_metadata_file_type(enum mt_weight_type type)
{
    switch (type) {
    case MT_WEIGHT_F32:
        return 0;
    case MT_WEIGHT_F16:
        return 1;
    case MT_WEIGHT_Q4_0:
        return 2;
    case MT_WEIGHT_Q8_0:
        return 7;
    case MT_WEIGHT_Q4_K:
        return 14;
    case MT_WEIGHT_Q6_K:
        return 18;
    case MT_WEIGHT_BF16:
        return 32;
    }
    return 0;
}

static void put_general(struct mt_gguf_header *header, const struct mt_model_shape *full,
                        uint64_t type)
{
    mt_gguf_string(header, "general.architecture", full->architecture);
    mt_gguf_string(header, "general.type", "model");
    mt_gguf_string(header, "general.name", full->name);
    mt_gguf_string(header, "general.description", "sample weights, not trained");
    mt_gguf_u32(header, "general.file_type", type);
    mt_gguf_u32(header, "general.quantization_version", 2);
    mt_gguf_u32(header, "general.alignment", MT_TENSOR_ALIGNMENT);
}

static void put_attention(struct writer *writer, const struct mt_model_shape *full)
{
    put_count(writer, "attention.head_count", full->heads);
    put_count(writer, "attention.head_count_kv", full->kv_heads);
    put_count(writer, "attention.key_length", full->head_size);
    put_count(writer, "attention.value_length", full->head_size);
    put_count(writer, "rope.dimension_count", full->head_size);
}

/* All heads share one compressed key and value, which is what the cache holds. */
static void put_latent_attention(struct writer *writer, const struct mt_model_shape *full)
{
    put_count(writer, "attention.head_count", full->heads);
    put_count(writer, "attention.head_count_kv", 1);
    put_count(writer, "attention.key_length", full->kv_lora_rank + full->qk_rope_head_size);
    put_count(writer, "attention.value_length", full->kv_lora_rank);
    put_count(writer, "attention.key_length_mla", full->head_size);
    put_count(writer, "attention.value_length_mla", full->value_head_size);
    put_count(writer, "attention.kv_lora_rank", full->kv_lora_rank);
    if (full->q_lora_rank)
        put_count(writer, "attention.q_lora_rank", full->q_lora_rank);
    put_count(writer, "rope.dimension_count", full->qk_rope_head_size);
}

static void put_experts(struct writer *writer, const struct mt_model_shape *full, unsigned traits)
{
    enum { SOFTMAX = 1, SIGMOID = 2 };
    put_count(writer, "expert_count", full->experts);
    put_count(writer, "expert_used_count", full->experts_used);
    if (traits & MT_TRAIT_EXPERT_LENGTH)
        put_count(writer, "expert_feed_forward_length", full->expert_ff_length);
    if (!(traits & MT_TRAIT_SHARED_EXPERTS))
        return;
    put_count(writer, "expert_shared_count", full->experts_shared);
    put_count(writer, "leading_dense_block_count", full->leading_dense_layers);
    put_factor(writer, "expert_weights_scale", full->expert_weights_scale);
    mt_gguf_bool(writer->header, key(writer, "expert_weights_norm"), full->sigmoid_router);
    put_count(writer, "expert_gating_func", full->sigmoid_router ? SIGMOID : SOFTMAX);
}

static void put_rope(struct writer *writer, const struct mt_model_shape *full)
{
    put_factor(writer, "rope.freq_base", full->rope_freq_base);
    if (full->rope_linear_factor > 0) {
        mt_gguf_string(writer->header, key(writer, "rope.scaling.type"), "linear");
        put_factor(writer, "rope.scaling.factor", full->rope_linear_factor);
    }
}

void mt_metadata_put(struct mt_gguf_header *header, const struct mt_model_shape *full,
                     const struct mt_architecture *architecture, uint64_t type)
{
    struct writer writer = {.header = header, .architecture = mt_arch_name(architecture->arch)};
    put_general(header, full, type);
    put_count(&writer, "block_count", full->layers);
    put_count(&writer, "context_length", full->context_length);
    put_count(&writer, "embedding_length", full->embedding_length);
    put_count(&writer, "feed_forward_length", full->ff_length);
    put_count(&writer, "vocab_size", full->vocabulary);
    put_factor(&writer, "attention.layer_norm_rms_epsilon", full->norm_epsilon);
    if (architecture->traits & MT_TRAIT_LATENT)
        put_latent_attention(&writer, full);
    else
        put_attention(&writer, full);
    if (full->sliding_window)
        put_count(&writer, "attention.sliding_window", full->sliding_window);
    put_rope(&writer, full);
    if (full->experts)
        put_experts(&writer, full, architecture->traits);
}
