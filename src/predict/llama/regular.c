/* SPDX-License-Identifier: MIT */
/* Whether a model's numbers make a graph at all. Files may say anything; what the replay divides by
 * and takes parts of is checked here, once. */
#include <string.h>

#include "internal.h"
#include "model/families.h"

/* Widths past this are no model's. */
#define WIDTH_MAX (UINT64_C(1) << 31)

static int is_width(uint64_t n)
{
    return n > 0 && n <= WIDTH_MAX;
}

static int has_state(const struct mt_model_description *d, enum mt_recurrence recurrence)
{
    if (recurrence == MT_RECURRENCE_SHORT_CONVOLUTION)
        return is_width(d->short_conv_cache);
    if (recurrence == MT_RECURRENCE_MAMBA || recurrence == MT_RECURRENCE_KIMI_DELTA)
        return is_width(d->time_step_rank) && is_width(d->state_size) && is_width(d->conv_kernel) &&
               is_width(d->inner_size);
    /* Others are built as the like of these, or left out where that cannot be. */
    if (recurrence != MT_RECURRENCE_MAMBA2 && recurrence != MT_RECURRENCE_DELTA_NET)
        return d->inner_size <= WIDTH_MAX && d->state_size <= WIDTH_MAX;
    return is_width(d->time_step_rank) && is_width(d->group_count) && is_width(d->state_size) &&
           is_width(d->conv_kernel) && is_width(d->inner_size) &&
           d->inner_size % d->time_step_rank == 0 && d->inner_size % d->group_count == 0 &&
           d->time_step_rank % d->group_count == 0;
}

static int is_gemma(const struct mt_model_description *d)
{
    return !d->is_embedder && mt_is_of_lineage(d->architecture, MT_LINEAGE_GEMMA);
}

/* Whether a layer can read the cache of the one that it names: its own, or in the families that
 * share caches an earlier one's of the same form. */
static int reads_cache(const struct mt_model_description *d, const struct mt_model_layer *layer,
                       uint64_t index)
{
    if (layer->cache_layer == index)
        return 1;
    if (layer->cache_layer > index || !is_gemma(d))
        return 0;
    const struct mt_model_layer *keeper = &d->layers[layer->cache_layer];
    return keeper->cache_layer == layer->cache_layer && keeper->attention == layer->attention &&
           keeper->kv_heads == layer->kv_heads && keeper->key_size == layer->key_size &&
           keeper->value_size == layer->value_size;
}

static int is_attention(const struct mt_model_description *d, uint64_t index)
{
    const struct mt_model_layer *layer = &d->layers[index];
    int latent = layer->attention == MT_ATTENTION_LATENT;
    int attends = layer->attention != MT_ATTENTION_NONE && (latent || layer->kv_heads);
    if (!attends)
        return !is_gemma(d);
    if (!is_width(layer->heads) || !is_width(layer->kv_heads) || !is_width(layer->key_size) ||
        layer->heads % layer->kv_heads || !reads_cache(d, layer, index))
        return 0;
    if (latent)
        return !is_gemma(d) && is_width(d->kv_lora_rank) && is_width(d->qk_rope_head_size) &&
               is_width(d->qk_nope_head_size) && is_width(d->value_head_size) &&
               layer->key_size == d->kv_lora_rank + d->qk_rope_head_size;
    return is_width(layer->value_size);
}

static int is_feed_forward(const struct mt_model_layer *layer)
{
    if (layer->ff_length > WIDTH_MAX || layer->shared_ff_length > WIDTH_MAX)
        return 0;
    return !layer->experts ||
           (is_width(layer->experts) && is_width(layer->experts_used) &&
            layer->experts_used <= layer->experts && is_width(layer->expert_ff_length));
}

/* Whether the indexer's sizes are those of one, where there is one. */
static int has_indexer(const struct mt_model_description *d)
{
    return d->indexer_heads <= WIDTH_MAX && d->indexer_head_size <= WIDTH_MAX &&
           d->indexer_top_k <= WIDTH_MAX;
}

int mt_llama_is_regular(const struct mt_model_description *d)
{
    if (!is_width(d->embedding_length) || !is_width(d->vocabulary) ||
        d->deepstack_layers > d->n_layers || d->expert_groups > WIDTH_MAX ||
        d->expert_groups_used > d->expert_groups || !has_indexer(d))
        return 0;
    for (uint64_t i = 0; i < d->n_layers; i++) {
        const struct mt_model_layer *layer = &d->layers[i];
        if (layer->recurrence != MT_RECURRENCE_NONE && !has_state(d, layer->recurrence))
            return 0;
        if (!is_attention(d, i) || !is_feed_forward(layer))
            return 0;
    }
    return 1;
}
