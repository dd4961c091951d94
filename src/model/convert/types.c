/* SPDX-License-Identifier: MIT */
/* Which type each tensor of a converted model has: that of llama.cpp's converter for whole numbers
 * of bytes, that of its quantiser for blocks, whose mixtures depend on what a tensor is for and on
 * its layer. Knows names of tensors, no family. */
#include <string.h>

#include "convert.h"

/* What a tensor is for, as the quantiser sees it. */
enum purpose {
    OUTPUT,
    EMBEDDING,
    ATTENTION_V,
    ATTENTION_QKV,
    ATTENTION_K,
    ATTENTION_O,
    DOWN,
    OTHER
};

/* What it remembers from tensor to tensor. */
struct mixing {
    const struct mt_convert *convert;
    uint64_t n_layers; /* without draft ones */
    uint64_t n_values; /* of ATTENTION_V and ATTENTION_QKV */
    uint64_t value_at; /* of which so many came before */
    uint64_t down_at;
    int tied; /* there is no output matrix */
};

uint64_t mt_convert_file_type(enum mt_file_type type)
{
    static const uint8_t numbers[] = {
        [MT_FILE_F32] = 0,   [MT_FILE_F16] = 1,     [MT_FILE_Q4_0] = 2,    [MT_FILE_Q8_0] = 7,
        [MT_FILE_Q4_K] = 14, [MT_FILE_Q4_K_S] = 14, [MT_FILE_Q4_K_M] = 15, [MT_FILE_Q5_K_M] = 17,
        [MT_FILE_Q6_K] = 18, [MT_FILE_BF16] = 32,   [MT_FILE_MXFP4] = 38,
    };
    return numbers[type];
}

/* The type that most matrices of a file have. */
static enum mt_ggml_type_number usual_type(enum mt_file_type type)
{
    static const uint8_t numbers[] = {
        [MT_FILE_F32] = MT_GGML_F32,     [MT_FILE_F16] = MT_GGML_F16,
        [MT_FILE_Q4_0] = MT_GGML_Q4_0,   [MT_FILE_Q8_0] = MT_GGML_Q8_0,
        [MT_FILE_Q4_K] = MT_GGML_Q4_K,   [MT_FILE_Q4_K_S] = MT_GGML_Q4_K,
        [MT_FILE_Q4_K_M] = MT_GGML_Q4_K, [MT_FILE_Q5_K_M] = MT_GGML_Q5_K,
        [MT_FILE_Q6_K] = MT_GGML_Q6_K,   [MT_FILE_BF16] = MT_GGML_BF16,
        [MT_FILE_MXFP4] = MT_GGML_MXFP4,
    };
    return (enum mt_ggml_type_number)numbers[type];
}

static int is_among(const char *name, const char *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(name, parts[i]))
            return 1;
    return 0;
}

#define IS_AMONG(name, parts) is_among(name, parts, sizeof(parts) / sizeof *(parts))

static int ends_in(const char *name, const char *ending)
{
    size_t length = strlen(name), n = strlen(ending);
    return length >= n && strcmp(name + length - n, ending) == 0;
}

/* Vectors, norms, routers and what is small beside the rest. */
static int is_always_f32(const struct mt_tensor *tensor)
{
    static const char *const parts[] = {
        "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "position_embd.", "token_types.",
        "ssm_conv1d",          "shortconv.conv.",           "altup_correct_", "altup_predict_",
        "indexer.proj.",
    };
    return tensor->n_dims == 1 || !ends_in(tensor->name, ".weight") ||
           ends_in(tensor->name, "_norm.weight") || IS_AMONG(tensor->name, parts);
}

/* What the quantiser leaves as the converter made it. */
static int stays_f16(const struct mt_tensor *tensor)
{
    static const char *const parts[] = {"altup", "laurel", "per_layer_model_proj",
                                        "indexer.k_proj.", "indexer.q_proj."};
    return IS_AMONG(tensor->name, parts);
}

static enum purpose purpose_of(const char *name)
{
    static const struct {
        const char *part;
        enum purpose purpose;
    } parts[] = {{"token_embd.weight", EMBEDDING},    {"attn_qkv.weight", ATTENTION_QKV},
                 {"attn_v.weight", ATTENTION_V},      {"attn_k.weight", ATTENTION_K},
                 {"attn_output.weight", ATTENTION_O}, {"ffn_down", DOWN}};
    if (strcmp(name, "output.weight") == 0)
        return OUTPUT;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].part))
            return parts[i].purpose;
    return OTHER;
}

/* The first and the last eighth of the layers, and every third between. */
static int gets_more_bits(uint64_t i, uint64_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

static int is_llama_70b(const struct mt_convert *convert)
{
    const uint64_t *v = convert->values;
    enum mt_arch arch = convert->family->arch;
    if (v[MT_V_layers] != 80)
        return 0;
    return arch == MT_ARCH_QWEN2 || arch == MT_ARCH_OLMO ||
           (arch == MT_ARCH_LLAMA && v[MT_V_all_heads] != v[MT_V_kv]);
}

static enum mt_ggml_type_number type_of_output(const struct mixing *m, uint64_t row)
{
    enum mt_ggml_type_number usual = usual_type(m->convert->type);
    const struct mt_ggml_type *type = mt_ggml_type_by_number((uint32_t)usual);
    if (m->convert->type == MT_FILE_MXFP4 || usual == MT_GGML_Q8_0 ||
        row % type->block_elements != 0 || m->convert->family->arch == MT_ARCH_FALCON)
        return MT_GGML_Q8_0;
    return MT_GGML_Q6_K;
}

static enum mt_ggml_type_number type_of_value(struct mixing *m, enum purpose purpose)
{
    enum mt_file_type file = m->convert->type;
    enum mt_ggml_type_number type = usual_type(file);
    uint64_t i = m->value_at++;
    if ((file == MT_FILE_Q4_K_M || file == MT_FILE_Q5_K_M) && gets_more_bits(i, m->n_values))
        type = MT_GGML_Q6_K;
    else if (file == MT_FILE_Q4_K_S && i < 4)
        type = MT_GGML_Q5_K;
    if (is_llama_70b(m->convert) && type == MT_GGML_Q4_K)
        type = MT_GGML_Q5_K;
    (void)purpose;
    return m->convert->values[MT_V_experts] == 8 ? MT_GGML_Q8_0 : type;
}

static enum mt_ggml_type_number type_of_down(struct mixing *m, const struct mt_tensor *tensor)
{
    enum mt_file_type file = m->convert->type;
    uint64_t i = m->convert->values[MT_V_experts] > 1 ? tensor->layer - 1 : m->down_at;
    uint64_t n = m->n_layers;
    int is_falcon = m->convert->family->arch == MT_ARCH_FALCON;
    m->down_at++;
    if (file == MT_FILE_Q4_K_M && is_falcon)
        return i < n / 16 ? MT_GGML_Q6_K : gets_more_bits(i, n) ? MT_GGML_Q5_K : MT_GGML_Q4_K;
    if ((file == MT_FILE_Q4_K_M || file == MT_FILE_Q5_K_M) && gets_more_bits(i, n))
        return MT_GGML_Q6_K;
    if (file == MT_FILE_Q4_K_S && !is_falcon && i < n / 8)
        return MT_GGML_Q5_K;
    return usual_type(file);
}

static enum mt_ggml_type_number mixed_type(struct mixing *m, const struct mt_tensor *tensor)
{
    enum purpose purpose = purpose_of(tensor->name);
    enum mt_file_type file = m->convert->type;
    int eight = m->convert->values[MT_V_experts] == 8;
    if (purpose == OUTPUT || (m->tied && purpose == EMBEDDING))
        return type_of_output(m, tensor->dims[0]);
    if (file == MT_FILE_MXFP4)
        return tensor->n_dims > 2 ? MT_GGML_MXFP4 : MT_GGML_Q8_0;
    if (purpose == ATTENTION_V || purpose == ATTENTION_QKV)
        return type_of_value(m, purpose);
    if (purpose == ATTENTION_K && eight)
        return MT_GGML_Q8_0;
    if (purpose == DOWN)
        return type_of_down(m, tensor);
    if (purpose == ATTENTION_O && eight && (file == MT_FILE_Q4_K_M || file == MT_FILE_Q4_K_S))
        return MT_GGML_Q5_K;
    return usual_type(file);
}

/* Experts that were published in four bits stay so. */
static int is_packed(const struct mt_convert *convert, const struct mt_tensor *tensor)
{
    return convert->values[MT_V_mxfp4] && convert->family->arch == MT_ARCH_GPT_OSS &&
           tensor->n_dims == 3;
}

static uint32_t type_of(struct mixing *m, const struct mt_tensor *tensor)
{
    enum mt_ggml_type_number usual = usual_type(m->convert->type);
    if (is_always_f32(tensor))
        return MT_GGML_F32;
    if (is_packed(m->convert, tensor))
        return MT_GGML_MXFP4;
    if (usual == MT_GGML_F32 || usual == MT_GGML_F16 || usual == MT_GGML_BF16)
        return (uint32_t)usual;
    if (stays_f16(tensor))
        return MT_GGML_F16;
    if (m->convert->type == MT_FILE_Q4_K)
        return MT_GGML_Q4_K;
    return (uint32_t)mixed_type(m, tensor);
}

void mt_convert_choose_types(struct mt_convert *convert)
{
    struct mixing mixing = {
        .convert = convert,
        .n_layers = convert->values[MT_V_layers] - convert->values[MT_V_drafts],
        .tied = 1,
    };
    for (size_t i = 0; i < convert->n_tensors; i++) {
        enum purpose purpose = purpose_of(convert->tensors[i].name);
        mixing.n_values += purpose == ATTENTION_V || purpose == ATTENTION_QKV;
        mixing.tied &= purpose != OUTPUT;
    }
    for (size_t i = 0; i < convert->n_tensors; i++) {
        struct mt_tensor *tensor = &convert->tensors[i];
        const struct mt_ggml_type *type = mt_ggml_type_by_number(type_of(&mixing, tensor));
        tensor->type = mt_ggml_type_for_row(type, tensor->dims[0]);
    }
}
