/* SPDX-License-Identifier: MIT */
/* The architectures and the checking of shapes. Numbers come from callers and are not trusted; what
 * passes here can be multiplied two at a time without a thought. */
#include "model/architecture.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

static const struct mt_architecture architectures[] = {
#define SAMPLE(id, traits) {MT_ARCH_##id, traits},
#include "model/families.def"
};

/* Which trait a field belongs to (0: every architecture has it), and whether it must be given. */
struct field {
    const char *name;
    size_t at;
    uint64_t most;
    unsigned trait;
    int required;
};

#define FIELD(name, most, trait, required)                                                         \
    {                                                                                              \
#name, offsetof(struct mt_model_shape, name), most, trait, required                        \
    }

/* The most layers and experts are what llama.cpp takes. */
static const struct field fields[] = {
    FIELD(layers, 512, 0, 1),
    FIELD(embedding_length, 1 << 20, 0, 1),
    FIELD(ff_length, 1 << 24, 0, 0),
    FIELD(heads, 1 << 16, 0, 1),
    FIELD(kv_heads, 1 << 16, 0, 0),
    FIELD(head_size, 1 << 16, 0, 0),
    FIELD(vocabulary, 1 << 20, 0, 1),
    FIELD(context_length, INT32_MAX, 0, 0),
    FIELD(sliding_window, INT32_MAX, MT_TRAIT_WINDOW, 1),
    FIELD(experts, 1024, MT_TRAIT_EXPERTS, 0),
    FIELD(experts_used, 1024, MT_TRAIT_EXPERTS, 0),
    FIELD(experts_shared, 1024, MT_TRAIT_SHARED_EXPERTS, 0),
    FIELD(expert_ff_length, 1 << 24, MT_TRAIT_EXPERT_LENGTH, 0),
    FIELD(leading_dense_layers, 512, MT_TRAIT_SHARED_EXPERTS, 0),
    FIELD(q_lora_rank, 1 << 20, MT_TRAIT_LATENT, 0),
    FIELD(kv_lora_rank, 1 << 20, MT_TRAIT_LATENT, 1),
    FIELD(qk_rope_head_size, 1 << 15, MT_TRAIT_LATENT, 1),
    FIELD(qk_nope_head_size, 1 << 15, MT_TRAIT_LATENT, 1),
    FIELD(value_head_size, 1 << 16, MT_TRAIT_LATENT, 1),
};

static int refuse(struct mt_error *error, const char *sentence)
{
    return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s", sentence);
}

static const struct mt_architecture *find_architecture(const char *name)
{
    enum mt_arch arch = mt_arch_of(name);
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (architectures[i].arch == arch)
            return &architectures[i];
    return NULL;
}

static int check_field(const struct field *field, const struct mt_model_shape *shape,
                       const struct mt_architecture *architecture, struct mt_error *error)
{
    uint64_t value;
    memcpy(&value, (const char *)shape + field->at, sizeof value);
    int applies = field->trait == 0 || (architecture->traits & field->trait) != 0;
    if (value > field->most)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s is %llu, the most is %llu", field->name,
                       (unsigned long long)value, (unsigned long long)field->most);
    if (value != 0 && !applies)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "a %s model has no %s",
                       mt_arch_name(architecture->arch), field->name);
    if (value == 0 && applies && field->required)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s must be given", field->name);
    return 0;
}

static int check_fields(const struct mt_model_shape *shape,
                        const struct mt_architecture *architecture, struct mt_error *error)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        int code = check_field(&fields[i], shape, architecture, error);
        if (code)
            return code;
    }
    return 0;
}

static int check_factors(const struct mt_model_shape *shape,
                         const struct mt_architecture *architecture, struct mt_error *error)
{
    const double factors[] = {shape->rope_freq_base, shape->rope_llama3_factor,
                              shape->rope_linear_factor, shape->norm_epsilon,
                              shape->expert_weights_scale};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (!isfinite(factors[i]) || factors[i] < 0 || factors[i] > 1e12)
            return refuse(error, "a rope, norm or expert factor is not between 0 and 1e12");
    if (shape->rope_llama3_factor > 0 && !(architecture->traits & MT_TRAIT_ROPE_FACTORS))
        return refuse(error, "rope_llama3_factor is for llama models only");
    if (shape->sigmoid_router && !(architecture->traits & MT_TRAIT_SHARED_EXPERTS))
        return refuse(error, "sigmoid_router is for deepseek2 models only");
    return 0;
}

static void fill_scalars(struct mt_model_shape *full)
{
    if (!full->name)
        full->name = "sample";
    if (full->context_length == 0)
        full->context_length = 8192;
    if (full->rope_freq_base == 0)
        full->rope_freq_base = 10000;
    if (full->norm_epsilon == 0)
        full->norm_epsilon = 1e-5;
    if (full->expert_weights_scale == 0)
        full->expert_weights_scale = 1;
}

static int complete_heads(struct mt_model_shape *full, unsigned traits, struct mt_error *error)
{
    if (full->kv_heads == 0)
        full->kv_heads = full->heads;
    if (full->heads % full->kv_heads != 0)
        return refuse(error, "heads is not a multiple of kv_heads");
    if (traits & MT_TRAIT_LATENT)
        full->head_size = full->qk_nope_head_size + full->qk_rope_head_size;
    if (full->head_size == 0 && full->embedding_length % full->heads != 0)
        return refuse(error, "embedding_length is not a multiple of heads; give head_size");
    if (full->head_size == 0)
        full->head_size = full->embedding_length / full->heads;
    if (full->head_size % 2 != 0 || full->qk_rope_head_size % 2 != 0)
        return refuse(error, "head_size (and qk_rope_head_size) must be even");
    if ((traits & MT_TRAIT_SQUARE_OUTPUT) &&
        full->heads * full->head_size != full->embedding_length)
        return refuse(error, "a qwen2 model has heads times head_size equal to embedding_length");
    return 0;
}

static int complete_experts(struct mt_model_shape *full, unsigned traits, struct mt_error *error)
{
    if (full->experts == 0 && (traits & MT_TRAIT_EXPERTS_ONLY))
        return refuse(error, "experts must be given");
    if (full->experts == 0 && full->experts_used != 0)
        return refuse(error, "experts_used without experts");
    if (full->experts != 0 && (full->experts_used == 0 || full->experts_used > full->experts))
        return refuse(error, "experts_used must be between 1 and experts");
    if (full->leading_dense_layers >= full->layers)
        return refuse(error, "leading_dense_layers must be fewer than layers");
    if (full->experts != 0 && full->expert_ff_length == 0)
        full->expert_ff_length = full->ff_length;
    int all_sparse = (traits & MT_TRAIT_EXPERT_LENGTH) && full->leading_dense_layers == 0;
    if (full->ff_length == 0 && all_sparse)
        full->ff_length = full->expert_ff_length;
    if (full->ff_length == 0)
        return refuse(error, "ff_length must be given");
    return 0;
}

static int complete(struct mt_model_shape *full, const struct mt_architecture *architecture,
                    struct mt_error *error)
{
    int code = check_fields(full, architecture, error);
    if (!code)
        code = check_factors(full, architecture, error);
    if (!code && full->vocabulary < MT_MODEL_VOCABULARY_MIN)
        code = mt_fail(error, MT_EARG, MT_NO_OFFSET, "vocabulary is %llu, the least is %d",
                       (unsigned long long)full->vocabulary, MT_MODEL_VOCABULARY_MIN);
    if (code)
        return code;
    fill_scalars(full);
    if (strlen(full->name) > 256)
        return refuse(error, "the name of the shape is longer than 256 bytes");
    code = complete_heads(full, architecture->traits, error);
    return code ? code : complete_experts(full, architecture->traits, error);
}

int mt_model_shape_complete(const struct mt_model_shape *shape, struct mt_model_shape *full,
                            const struct mt_architecture **architecture, struct mt_error *error)
{
    const char *name = shape->architecture ? shape->architecture : mt_arch_name(MT_ARCH_LLAMA);
    const struct mt_architecture *found = find_architecture(name);
    if (!found)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "no architecture '%.40s'; there are llama, qwen2, qwen3, qwen3moe, gemma3 "
                       "and deepseek2",
                       name);
    struct mt_model_shape copy = *shape;
    copy.architecture = mt_arch_name(found->arch);
    int code = complete(&copy, found, error);
    if (code)
        return code;
    *full = copy;
    *architecture = found;
    return 0;
}
