/* SPDX-License-Identifier: MIT */
/* Latent attention as engines take it from files of both forms: those that hold the matrix which
 * makes keys and values of all heads (attn_kv_b), as all did before April 2025, and those that hold
 * it in two parts (attn_k_b, attn_v_b). */
#include <inttypes.h>
#include <memtally/category.h>
#include <memtally/provenance.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/out_of_memory.h"
#include "internal.h"
#include "predict/term.h"

int mt_llama_is_latent(const struct mt_model_description *d, const struct mt_model_layer *layer)
{
    if (layer->attention == MT_ATTENTION_LATENT)
        return 1;
    return layer->attention == MT_ATTENTION_GLOBAL && d->kv_lora_rank && d->qk_rope_head_size &&
           d->qk_nope_head_size && d->value_head_size &&
           layer->key_size == d->qk_nope_head_size + d->qk_rope_head_size;
}

/* What the file has of a layer's matrix, and of which types. */
struct halves {
    struct mt_model_tensor whole;
    struct mt_model_tensor keys;
    struct mt_model_tensor values;
};

static int ends_with(const struct mt_model_tensor *tensor, const char *end)
{
    size_t length = strlen(end);
    return tensor->name_length > length &&
           !memcmp(tensor->name + tensor->name_length - length, end, length);
}

static void note_half(struct halves *layers, size_t n, const struct mt_model_tensor *tensor)
{
    if (tensor->layer >= n)
        return;
    struct halves *layer = &layers[tensor->layer];
    if (ends_with(tensor, ".attn_kv_b.weight"))
        layer->whole = *tensor;
    else if (ends_with(tensor, ".attn_k_b.weight"))
        layer->keys = *tensor;
    else if (ends_with(tensor, ".attn_v_b.weight"))
        layer->values = *tensor;
}

static int is_wide(const char *type)
{
    return type && (!strcmp(type, "f16") || !strcmp(type, "bf16") || !strcmp(type, "f32"));
}

/* The parts are made in the type of the whole, keys in q8_0 where that is quantised; the whole in
 * the type of both parts where they are not quantised, else in q8_0. */
static uint64_t made_bytes(const struct mt_llama_plan *plan, const struct mt_model_layer *layer,
                           const struct halves *file)
{
    const struct mt_model_description *d = plan->in->d;
    const struct mt_engine *e = plan->in->engine;
    uint64_t keys =
        mt_llama_times(mt_llama_times(layer->heads, d->qk_nope_head_size), d->kv_lora_rank);
    uint64_t values =
        mt_llama_times(mt_llama_times(layer->heads, d->value_head_size), d->kv_lora_rank);
    if (file->whole.bytes && !file->keys.bytes && mt_engine_has(e, "weights.latent", "parts")) {
        const char *type = is_wide(file->whole.type) ? file->whole.type : "q8_0";
        double share =
            (double)d->value_head_size / (double)(d->value_head_size + d->qk_nope_head_size);
        return mt_llama_add(mt_llama_type_bytes(type, keys),
                            (uint64_t)(share * (double)file->whole.bytes));
    }
    if (!file->whole.bytes && file->keys.bytes && file->values.bytes &&
        plan->in->settings->mla_mode > 1 && mt_engine_has(e, "weights.latent", "whole")) {
        int same = is_wide(file->keys.type) && !strcmp(file->keys.type, file->values.type);
        return mt_llama_type_bytes(same ? file->keys.type : "q8_0", mt_llama_add(keys, values));
    }
    return 0;
}

static void add_made(const struct mt_llama_plan *plan, struct mt_sheet *sheet, int place,
                     const struct halves *layers)
{
    uint64_t bytes = 0;
    uint64_t n = 0;
    for (size_t i = 0; i < plan->n_layers; i++) {
        uint64_t made =
            plan->device_of[i] == place ? made_bytes(plan, &plan->in->d->layers[i], &layers[i]) : 0;
        bytes = mt_llama_add(bytes, made);
        n += made != 0;
    }
    if (!n || bytes > MT_LLAMA_SANE_BYTES)
        return;
    struct mt_sheet_term term = {.place = place,
                                 .category = MT_CATEGORY_WEIGHTS,
                                 .name = "latent attention's other form",
                                 .rule = "weights_latent",
                                 .bytes = bytes,
                                 .provenance = MT_PROVENANCE_DERIVED};
    mt_sheet_add(sheet, &term, "of %" PRIu64 " layers, made when the file is loaded", n);
}

int mt_llama_latent_weights(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                            struct mt_error *error)
{
    const struct mt_predict_input *in = plan->in;
    struct mt_model_tensor tensor;
    if (!in->d->kv_lora_rank || !in->settings->mla_mode)
        return 0;
    struct halves *layers = calloc(plan->n_layers + 1, sizeof *layers);
    if (!layers)
        return mt_out_of_memory(error);
    for (uint64_t i = 0; i < in->d->n_tensors; i++)
        if (mt_model_tensor_at(in->model, i, &tensor) == 0)
            note_half(layers, plan->n_layers, &tensor);
    for (int place = MT_HOST_PLACE; place < (int)plan->n_devices; place++)
        add_made(plan, sheet, place, layers);
    free(layers);
    return 0;
}
