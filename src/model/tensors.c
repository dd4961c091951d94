/* SPDX-License-Identifier: MIT */
/* Which tensors a model has and how they lie in the file. Names are those that llama.cpp asks for.
 * The first failure is kept in the plan; what follows it does nothing, so that the lists of tensors
 * read as lists. */
#include "model/tensors.h"

#include "base/array.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct plan {
    const struct mt_model_shape *shape;
    unsigned traits;
    const struct mt_ggml_type *type;
    struct mt_tensor_list list;
    uint64_t layer;
    int code;
};

static int reserve_one(struct mt_tensor_list *list)
{
    return mt_array_reserve(list->items, list->n, list->capacity, 64);
}

/* Gives the tensor its place at the end of the data. */
static int place(struct mt_tensor_list *list, struct mt_tensor *tensor)
{
    uint64_t end, mask = MT_TENSOR_ALIGNMENT - 1;
    tensor->offset = list->data_bytes;
    if (__builtin_add_overflow(tensor->offset, tensor->bytes, &end) || end > INT64_MAX - mask)
        return MT_ELIMIT;
    list->data_bytes = (end + mask) & ~mask;
    list->bytes += tensor->bytes;
    list->elements += tensor->elements;
    return 0;
}

int mt_tensor_list_add(struct mt_tensor_list *list, struct mt_tensor *tensor)
{
    int code = mt_ggml_tensor_size(tensor->type, tensor->dims, tensor->n_dims, &tensor->elements,
                                   &tensor->bytes);
    if (!code)
        code = reserve_one(list);
    if (!code)
        code = place(list, tensor);
    if (!code)
        list->items[list->n++] = *tensor;
    return code;
}

/* Names inside a layer start with a dot. */
static void put(struct plan *plan, const char *name, struct mt_tensor tensor)
{
    if (plan->code)
        return;
    if (name[0] == '.')
        snprintf(tensor.name, sizeof tensor.name, "blk.%llu%s", (unsigned long long)plan->layer,
                 name);
    else
        snprintf(tensor.name, sizeof tensor.name, "%s", name);
    plan->code = mt_tensor_list_add(&plan->list, &tensor);
}

static void stack(struct plan *plan, const char *name, uint64_t row, uint64_t rows, uint64_t depth)
{
    put(plan, name,
        (struct mt_tensor){.n_dims = depth ? 3 : 2,
                           .dims = {row, rows, depth},
                           .type = mt_ggml_type_for_row(plan->type, row)});
}

static void matrix(struct plan *plan, const char *name, uint64_t row, uint64_t rows)
{
    stack(plan, name, row, rows, 0);
}

static void vector(struct plan *plan, const char *name, uint64_t length, enum mt_tensor_fill fill)
{
    put(plan, name,
        (struct mt_tensor){.n_dims = 1,
                           .dims = {length},
                           .type = mt_ggml_type_by_number(MT_GGML_F32),
                           .fill = fill});
}

static void norm(struct plan *plan, const char *name, uint64_t length)
{
    vector(plan, name, length, MT_FILL_ONES);
}

static void add_attention(struct plan *plan)
{
    const struct mt_model_shape *s = plan->shape;
    uint64_t q = s->heads * s->head_size, kv = s->kv_heads * s->head_size;
    matrix(plan, ".attn_q.weight", s->embedding_length, q);
    matrix(plan, ".attn_k.weight", s->embedding_length, kv);
    matrix(plan, ".attn_v.weight", s->embedding_length, kv);
    matrix(plan, ".attn_output.weight", q, s->embedding_length);
    if (plan->traits & MT_TRAIT_QKV_BIAS) {
        vector(plan, ".attn_q.bias", q, MT_FILL_ZEROS);
        vector(plan, ".attn_k.bias", kv, MT_FILL_ZEROS);
        vector(plan, ".attn_v.bias", kv, MT_FILL_ZEROS);
    }
    if (plan->traits & MT_TRAIT_QK_NORM) {
        norm(plan, ".attn_q_norm.weight", s->head_size);
        norm(plan, ".attn_k_norm.weight", s->head_size);
    }
}

static void add_latent_attention(struct plan *plan)
{
    const struct mt_model_shape *s = plan->shape;
    uint64_t d = s->embedding_length, q = s->heads * s->head_size;
    if (s->q_lora_rank) {
        norm(plan, ".attn_q_a_norm.weight", s->q_lora_rank);
        matrix(plan, ".attn_q_a.weight", d, s->q_lora_rank);
        matrix(plan, ".attn_q_b.weight", s->q_lora_rank, q);
    } else {
        matrix(plan, ".attn_q.weight", d, q);
    }
    norm(plan, ".attn_kv_a_norm.weight", s->kv_lora_rank);
    matrix(plan, ".attn_kv_a_mqa.weight", d, s->kv_lora_rank + s->qk_rope_head_size);
    stack(plan, ".attn_k_b.weight", s->qk_nope_head_size, s->kv_lora_rank, s->heads);
    stack(plan, ".attn_v_b.weight", s->kv_lora_rank, s->value_head_size, s->heads);
    matrix(plan, ".attn_output.weight", s->heads * s->value_head_size, d);
}

static void add_dense(struct plan *plan)
{
    uint64_t d = plan->shape->embedding_length, ff = plan->shape->ff_length;
    matrix(plan, ".ffn_gate.weight", d, ff);
    matrix(plan, ".ffn_up.weight", d, ff);
    matrix(plan, ".ffn_down.weight", ff, d);
}

/* The router is f32 in every published file. */
static void add_experts(struct plan *plan)
{
    const struct mt_model_shape *s = plan->shape;
    uint64_t d = s->embedding_length, ff = s->expert_ff_length, shared = s->experts_shared * ff;
    put(plan, ".ffn_gate_inp.weight",
        (struct mt_tensor){
            .n_dims = 2, .dims = {d, s->experts}, .type = mt_ggml_type_by_number(MT_GGML_F32)});
    stack(plan, ".ffn_gate_exps.weight", d, ff, s->experts);
    stack(plan, ".ffn_up_exps.weight", d, ff, s->experts);
    stack(plan, ".ffn_down_exps.weight", ff, d, s->experts);
    if (s->sigmoid_router)
        vector(plan, ".exp_probs_b.bias", s->experts, MT_FILL_ZEROS);
    if (shared) {
        matrix(plan, ".ffn_gate_shexp.weight", d, shared);
        matrix(plan, ".ffn_up_shexp.weight", d, shared);
        matrix(plan, ".ffn_down_shexp.weight", shared, d);
    }
}

static void add_layer(struct plan *plan)
{
    const struct mt_model_shape *s = plan->shape;
    norm(plan, ".attn_norm.weight", s->embedding_length);
    if (plan->traits & MT_TRAIT_LATENT)
        add_latent_attention(plan);
    else
        add_attention(plan);
    if (plan->traits & MT_TRAIT_POST_NORMS)
        norm(plan, ".post_attention_norm.weight", s->embedding_length);
    norm(plan, ".ffn_norm.weight", s->embedding_length);
    if (s->experts && plan->layer >= s->leading_dense_layers)
        add_experts(plan);
    else
        add_dense(plan);
    if (plan->traits & MT_TRAIT_POST_NORMS)
        norm(plan, ".post_ffw_norm.weight", s->embedding_length);
}

static void add_all(struct plan *plan)
{
    const struct mt_model_shape *s = plan->shape;
    matrix(plan, "token_embd.weight", s->embedding_length, s->vocabulary);
    norm(plan, "output_norm.weight", s->embedding_length);
    if (!s->tied_embeddings)
        matrix(plan, "output.weight", s->embedding_length, s->vocabulary);
    if (s->rope_llama3_factor > 0)
        vector(plan, "rope_freqs.weight", s->head_size / 2, MT_FILL_ROPE_FACTORS);
    for (plan->layer = 0; plan->layer < s->layers; plan->layer++)
        add_layer(plan);
}

int mt_model_tensors(const struct mt_model_shape *full, const struct mt_architecture *architecture,
                     const struct mt_ggml_type *type, struct mt_tensor_list *list,
                     struct mt_error *error)
{
    struct plan plan = {.shape = full, .traits = architecture->traits, .type = type};
    add_all(&plan);
    if (plan.code) {
        mt_tensor_list_finish(&plan.list);
        const char *text = plan.code == MT_ENOMEM ? "no memory for the list of tensors"
                                                  : "the model is larger than a file can be";
        return mt_fail(error, plan.code, MT_NO_OFFSET, "%s", text);
    }
    *list = plan.list;
    return 0;
}

void mt_tensor_list_finish(struct mt_tensor_list *list)
{
    free(list->items);
    *list = (struct mt_tensor_list){0};
}
