/* SPDX-License-Identifier: MIT */
/* Which part of each tensor a rank holds. Matrices are cut along the heads or the hidden units;
 * what every rank needs whole (norms, routers, the compressing matrices of latent attention) is
 * held by each. Names are those of Hugging Face's checkpoints, and of GGUF. */
#include <memtally/category.h>
#include <memtally/provenance.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/error.h"
#include "predict/sheet.h"
#include "torch.h"

enum cut { CUT_EVENLY, CUT_VOCABULARY, CUT_KV_HEADS, CUT_NOT };

static int has(const struct mt_model_tensor *tensor, const char *part)
{
    return memmem(tensor->name, tensor->name_length, part, strlen(part)) != NULL;
}

static int ends(const struct mt_model_tensor *tensor, const char *part)
{
    size_t length = strlen(part);
    return tensor->name_length >= length &&
           !memcmp(tensor->name + tensor->name_length - length, part, length);
}

static int has_any(const struct mt_model_tensor *tensor, const char *const *parts)
{
    for (; *parts; parts++)
        if (has(tensor, *parts))
            return 1;
    return 0;
}

static int is_vocabulary(const struct mt_model_tensor *tensor)
{
    return tensor->n_dims >= 2 &&
           (tensor->role == MT_TENSOR_TOKEN_EMBEDDING ||
            tensor->role == MT_TENSOR_PER_LAYER_EMBEDDING || tensor->role == MT_TENSOR_OUTPUT);
}

/* Scales and biases of a matrix that is cut along its input belong to all ranks. */
static int is_flat(const struct mt_model_tensor *tensor)
{
    return tensor->n_dims < 2 || tensor->dims[0] == 1;
}

static enum cut cut_of(const struct mt_model_tensor *tensor)
{
    static const char *const whole[] = {
        "norm",    "router",   "mlp.gate.", "moe.gate.",          "gate_inp",  "shared_expert_gate",
        "e_score", "q_a_proj", "kv_a_proj", "attn_q_a.",          "attn_kv_a", "indexer",
        "ln_1",    "ln_2",     "ln_f",      "feed_forward.gate.", "position",  "rotary",
        NULL};
    static const char *const kv[] = {"k_proj", "v_proj", "attn_k.", "attn_v.", NULL};
    static const char *const by_input[] = {"o_proj",   "out_proj",    "down_proj",     ".w2.",
                                           "ffn_down", "attn_output", "dense_4h_to_h", NULL};
    if (is_vocabulary(tensor))
        return CUT_VOCABULARY;
    if (tensor->elements <= 1 || has_any(tensor, whole))
        return CUT_NOT;
    if (has_any(tensor, by_input) && is_flat(tensor) && tensor->role != MT_TENSOR_EXPERTS)
        return CUT_NOT;
    return has_any(tensor, kv) ? CUT_KV_HEADS : CUT_EVENLY;
}

static int is_float(const char *type)
{
    return !strcmp(type, "bf16") || !strcmp(type, "f16") || !strcmp(type, "f32") ||
           !strcmp(type, "f64");
}

/* Bytes of a tensor once it is loaded, whole. */
static uint64_t loaded_bytes(const struct mt_model_tensor *tensor, int float_bytes)
{
    if (!float_bytes && ends(tensor, "weight_scale") && is_float(tensor->type))
        return mt_mul(tensor->elements, 4); /* kept in 32 bit whatever the file has */
    if (!float_bytes || !is_float(tensor->type))
        return tensor->bytes;
    int is_matrix = tensor->n_dims >= 2 && tensor->dims[0] > 1 &&
                    (tensor->role == MT_TENSOR_LAYER || tensor->role == MT_TENSOR_EXPERTS);
    if (float_bytes == 1 && is_matrix && cut_of(tensor) != CUT_NOT)
        return mt_add(tensor->elements, mt_mul(tensor->elements / tensor->dims[0], 4));
    return mt_mul(tensor->elements, float_bytes == 1 ? 2 : (uint64_t)float_bytes);
}

static uint64_t kv_heads_of(const struct mt_predict_input *in, const struct mt_model_tensor *tensor)
{
    if (tensor->layer < in->d->n_layers && in->d->layers[tensor->layer].kv_heads)
        return in->d->layers[tensor->layer].kv_heads;
    return UINT64_MAX;
}

/* Whether a rank of the stage holds the tensor at all. */
static int is_held(const struct mt_predict_input *in, const struct mt_model_tensor *tensor,
                   const struct mt_torch_stage *stage)
{
    if (tensor->layer != MT_NO_LAYER)
        return tensor->layer >= stage->first && tensor->layer < stage->end;
    switch (tensor->role) {
    case MT_TENSOR_TOKEN_EMBEDDING:
        return stage->is_first || (stage->is_last && in->d->tied_output);
    case MT_TENSOR_OUTPUT:
        return !in->d->tied_output &&
               (stage->is_last ||
                mt_engine_has(in->engine, "output.every_stage", in->d->architecture));
    case MT_TENSOR_OUTPUT_OTHER:
        return stage->is_last;
    default:
        return stage->is_first;
    }
}

static uint64_t padded_vocabulary(const struct mt_model_tensor *tensor, uint64_t bytes,
                                  uint64_t padding)
{
    uint64_t rows = tensor->dims[tensor->n_dims - 1];
    if (padding < 2 || !rows)
        return bytes;
    uint64_t padded = mt_mul(mt_ceil_div(rows, padding), padding);
    return mt_mul(bytes / rows, padded);
}

/* Tensors of a layer that the engine has as one. */
enum joint {
    JOINT_QKV,
    JOINT_ATTENTION_OUT,
    JOINT_GATE_UP,
    JOINT_DOWN,
    JOINT_EXPERTS_IN,
    JOINT_EXPERTS_OUT,
    N_JOINTS
};

enum { ROTATION_BLOCKS = 3, KEPT_REST = 20 << 20 }; /* kLargeBuffer */

struct joining {
    uint32_t layer;
    uint32_t first_layer;
    uint64_t bytes[N_JOINTS];
    uint64_t freed[ROTATION_BLOCKS]; /* blocks that no tensor has taken yet */
};

static enum joint joint_of(const struct mt_model_tensor *tensor)
{
    static const char *const qkv[] = {"q_proj.weight",
                                      "k_proj.weight",
                                      "v_proj.weight",
                                      "attn_q.weight",
                                      "attn_k.weight",
                                      "attn_v.weight",
                                      NULL};
    static const char *const experts_out[] = {"down_proj", "down_exps", ".w2.", NULL};
    static const char *const down[] = {"down_proj.weight", "ffn_down.weight", NULL};
    static const char *const out[] = {"o_proj.weight", "attn_output.weight", NULL};
    static const char *const gate_up[] = {"gate_proj.weight", "up_proj.weight", "ffn_gate.weight",
                                          "ffn_up.weight", NULL};
    if (tensor->layer == MT_NO_LAYER || has(tensor, "scale") || has(tensor, "bias"))
        return N_JOINTS;
    if (tensor->role == MT_TENSOR_EXPERTS)
        return has_any(tensor, experts_out) ? JOINT_EXPERTS_OUT : JOINT_EXPERTS_IN;
    return has_any(tensor, qkv)       ? JOINT_QKV
           : has_any(tensor, out)     ? JOINT_ATTENTION_OUT
           : has_any(tensor, gate_up) ? JOINT_GATE_UP
           : has_any(tensor, down)    ? JOINT_DOWN
                                      : N_JOINTS;
}

/* Cosines and sines are made of their angles and put into one tensor, in 32 bit. It stays, or a
 * copy in 16 bit does, in the block of the angles. Blocks of `whole_bytes` are not divided. */
static void free_rotations(const struct mt_torch_load *load, struct joining *joining)
{
    const uint64_t freed[ROTATION_BLOCKS] = {
        load->rotation_bytes, load->rotation_bytes,
        mt_mul(load->keeps_rotations ? 1 : 2, load->rotation_bytes)};
    for (size_t i = 0; load->whole_bytes && i < ROTATION_BLOCKS; i++) {
        uint64_t block = mt_torch_block_bytes(freed[i], load->whole_bytes);
        joining->freed[i] = block >= load->whole_bytes ? block : 0;
    }
}

/* A tensor takes the smallest free block that holds it, unless 20 MiB would be left (PyTorch,
 * c10/cuda/CUDACachingAllocator.cpp, get_free_block). */
static void reuse_block(const struct mt_torch_load *load, uint64_t bytes, struct joining *joining,
                        struct mt_torch_weights *weights)
{
    uint64_t block = mt_torch_block_bytes(bytes, load->whole_bytes);
    uint64_t *best = NULL;
    if (block < load->whole_bytes)
        return;
    for (uint64_t *one = joining->freed; one < joining->freed + ROTATION_BLOCKS; one++)
        if (*one >= block && *one < block + KEPT_REST && (!best || *one < *best))
            best = one;
    if (!best)
        return;
    weights->reused_bytes = mt_add(weights->reused_bytes, *best - block);
    *best = 0;
}

static void round_block(const struct mt_torch_load *load, uint64_t bytes,
                        struct mt_torch_weights *weights)
{
    weights->rounding_bytes =
        mt_add(weights->rounding_bytes, mt_torch_block_bytes(bytes, load->whole_bytes) - bytes);
}

static void round_joined(const struct mt_torch_load *load, struct joining *joining,
                         struct mt_torch_weights *weights)
{
    for (size_t i = 0; i < N_JOINTS; i++) {
        int is_before = joining->layer == joining->first_layer && i <= JOINT_ATTENTION_OUT;
        round_block(load, joining->bytes[i], weights);
        if (!is_before)
            reuse_block(load, joining->bytes[i], joining, weights);
        joining->bytes[i] = 0;
    }
}

/* Files have the tensors of a layer beside each other. */
static void join(const struct mt_torch_load *load, const struct mt_model_tensor *tensor,
                 uint64_t bytes, struct joining *joining, struct mt_torch_weights *weights)
{
    enum joint joint = joint_of(tensor);
    if (tensor->layer != joining->layer)
        round_joined(load, joining, weights);
    joining->layer = tensor->layer;
    if (joint == N_JOINTS)
        round_block(load, bytes, weights);
    else
        joining->bytes[joint] = mt_add(joining->bytes[joint], bytes);
}

/* Returns the bytes that the rank has of the tensor. */
static uint64_t add_tensor(const struct mt_predict_input *in, const struct mt_torch_load *load,
                           const struct mt_model_tensor *tensor, struct mt_torch_weights *weights)
{
    uint64_t parallel = load->tensor_parallel;
    uint64_t bytes = loaded_bytes(tensor, load->float_bytes);
    uint64_t heads = kv_heads_of(in, tensor);
    enum cut cut = is_vocabulary(tensor) ? CUT_VOCABULARY : CUT_EVENLY;
    if (parallel > 1)
        cut = cut_of(tensor);
    switch (cut) {
    case CUT_NOT:
        weights->replicated_bytes = mt_add(weights->replicated_bytes, bytes);
        break;
    case CUT_VOCABULARY:
        bytes = mt_ceil_div(padded_vocabulary(tensor, bytes, load->vocabulary_padding), parallel);
        weights->vocabulary_bytes = mt_add(weights->vocabulary_bytes, bytes);
        break;
    case CUT_KV_HEADS:
        bytes = mt_ceil_div(bytes, heads < parallel ? heads : parallel);
        break;
    case CUT_EVENLY:
        bytes = mt_ceil_div(bytes, parallel);
        break;
    }
    if (tensor->role == MT_TENSOR_EXPERTS && (ends(tensor, "_blocks") || ends(tensor, "_scales")))
        weights->mxfp4_bytes = mt_add(weights->mxfp4_bytes, bytes);
    weights->bytes = mt_add(weights->bytes, bytes);
    return bytes;
}

/* A feed-forward with a gate has half as much again in its matrices. A config.json says little else
 * of encoders. */
static void add_encoders(const struct mt_predict_input *in, const struct mt_torch_load *load,
                         struct mt_torch_weights *weights)
{
    uint64_t bytes = mt_mul(in->d->encoder_parameters, mt_torch_float_width(in->settings));
    bytes = mt_ceil_div(bytes, load->tensor_parallel);
    weights->encoder_bytes = bytes;
    weights->encoder_low_bytes = mt_scale(bytes, 0.85);
    weights->encoder_high_bytes = mt_scale(bytes, 1.5);
}

void mt_torch_write_encoders(const struct mt_torch_weights *weights, int place,
                             struct mt_sheet *sheet)
{
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = place,
                                         .category = MT_CATEGORY_WEIGHTS,
                                         .name = "encoders",
                                         .rule = "weights.encoders",
                                         .bytes = weights->encoder_bytes,
                                         .low_bytes = weights->encoder_low_bytes,
                                         .high_bytes = weights->encoder_high_bytes,
                                         .provenance = MT_PROVENANCE_INFERRED},
                 "layers and mergers that config.json describes");
}

void mt_torch_weights_of(const struct mt_predict_input *in, const struct mt_torch_load *load,
                         const struct mt_torch_stage *stage, struct mt_torch_weights *weights)
{
    struct joining joining = {.layer = MT_NO_LAYER, .first_layer = (uint32_t)stage->first};
    *weights = (struct mt_torch_weights){0};
    free_rotations(load, &joining);
    reuse_block(load, load->attention_bytes, &joining, weights);
    for (uint64_t i = 0; i < in->d->n_tensors; i++) {
        struct mt_model_tensor tensor;
        if (mt_model_tensor_at(in->model, i, &tensor) < 0 || !is_held(in, &tensor, stage))
            continue;
        uint64_t bytes = add_tensor(in, load, &tensor, weights);
        if (load->is_fused)
            join(load, &tensor, bytes, &joining, weights);
    }
    round_joined(load, &joining, weights);
    if (in->d->lacks_encoders && stage->is_first)
        add_encoders(in, load, weights);
}

int mt_torch_float_bytes(const struct mt_predict_input *in, int *float_bytes,
                         struct mt_error *error)
{
    const char *type = in->settings->weight_type;
    int is_wide = in->d->dtype && !strcmp(in->d->dtype, "f32");
    if (!type || !strcmp(type, "auto"))
        *float_bytes = is_wide ? 2 : 0;
    else if (!strcmp(type, "fp8"))
        *float_bytes = 1;
    else if (!strcmp(type, "bf16") || !strcmp(type, "f16") || !strcmp(type, "fp16") ||
             !strcmp(type, "bfloat16") || !strcmp(type, "float16") || !strcmp(type, "half"))
        *float_bytes = 2;
    else if (!strcmp(type, "f32") || !strcmp(type, "float32"))
        *float_bytes = 4;
    else
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s has no weight type %.40s; it knows auto, bfloat16, float16, float32 and "
                       "fp8",
                       in->engine->name, type);
    return 0;
}
