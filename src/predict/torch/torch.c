/* SPDX-License-Identifier: MIT */
/* Caches, states and activations of the engines on PyTorch. */
#include "torch.h"

#include <string.h>

#include <memtally/settings.h>

#include "model/families.h"

uint64_t mt_torch_layers(const struct mt_predict_input *in)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < in->d->n_layers; i++)
        n += !in->d->layers[i].is_draft || in->settings->draft_tokens;
    return n;
}

void mt_torch_stage_of(const struct mt_predict_input *in, uint64_t stage, uint64_t n_stages,
                       struct mt_torch_stage *part)
{
    uint64_t layers = mt_torch_layers(in);
    uint64_t each = layers / n_stages;
    uint64_t rest = layers % n_stages;
    uint64_t first = 0;
    uint64_t own = 0;
    for (uint64_t i = 0; i <= stage; i++) {
        first += own;
        own = each + (i + 1 < n_stages && i + 1 + rest >= n_stages);
    }
    *part = (struct mt_torch_stage){.first = first,
                                    .end = first + own,
                                    .is_first = stage == 0,
                                    .is_last = stage + 1 == n_stages};
}

int mt_torch_next_rank(const struct mt_predict_input *in, struct mt_torch_walk *walk)
{
    uint64_t parallel = in->settings->tensor_parallel;
    if (walk->next >= parallel * in->settings->pipeline_parallel)
        return 0;
    walk->device = walk->next++;
    walk->stage = walk->device / parallel;
    walk->opens_stage = walk->device % parallel == 0;
    return 1;
}

int mt_torch_is_tighter(struct mt_torch_room room, struct mt_torch_room other)
{
    int is_out = room.left_bytes <= 0;
    if (is_out != (other.left_bytes <= 0))
        return is_out;
    if (!is_out && room.units != other.units)
        return room.units < other.units;
    return room.left_bytes < other.left_bytes;
}

const char *mt_torch_dtype_name(const char *weight_type)
{
    static const char *const others[][2] = {
        {"bf16", "bfloat16"}, {"f16", "float16"}, {"fp16", "float16"}, {"f32", "float32"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i][0], weight_type))
            return others[i][1];
    return weight_type;
}

/* Latent vectors in 8 bit keep their rotary part in 16 bit and have four scales. */
const struct mt_torch_cell *mt_torch_cell_of(const char *name)
{
    static const struct mt_torch_cell cells[] = {
        {.name = "auto", .bytes = 2},
        {.name = "bfloat16", .bytes = 2},
        {.name = "float16", .bytes = 2},
        {.name = "float32", .bytes = 4},
        {.name = "fp8", .bytes = 1},
        {.name = "fp8_e4m3", .bytes = 1},
        {.name = "fp8_e5m2", .bytes = 1},
        {.name = "fp8_ds_mla", .bytes = 1, .latent_bytes = 656},
        {.name = "int8", .bytes = 1},
        {.name = "fp8_per_token_head", .bytes = 1, .bytes_of_head = 4},
        {.name = "int8_per_token_head", .bytes = 1, .bytes_of_head = 4},
        {.name = "nvfp4", .bytes = 0.5625},
        {.name = "q2", .bytes = 2.5 / 8},
        {.name = "q3", .bytes = 3.5 / 8},
        {.name = "q4", .bytes = 4.5 / 8},
        {.name = "q5", .bytes = 5.5 / 8},
        {.name = "q6", .bytes = 6.5 / 8},
        {.name = "q7", .bytes = 7.5 / 8},
        {.name = "q8", .bytes = 8.5 / 8},
    };
    name = mt_torch_dtype_name(name);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        if (!strcmp(cells[i].name, name))
            return &cells[i];
    return NULL;
}

uint64_t mt_torch_float_width(const struct mt_predict_settings *settings)
{
    const char *type = settings->weight_type;
    return type && (!strcmp(type, "f32") || !strcmp(type, "float32")) ? 4 : 2;
}

struct mt_torch_cell mt_torch_cache_of(const struct mt_predict_settings *settings)
{
    struct mt_torch_cell cell = *mt_torch_cell_of(settings->kv_type_k);
    if (!strcmp(cell.name, "auto"))
        cell.bytes = (double)mt_torch_float_width(settings);
    return cell;
}

uint64_t mt_torch_block_bytes(uint64_t bytes, uint64_t whole_bytes)
{
    const uint64_t wanted = mt_mul(mt_ceil_div(bytes, 512), 512);
    if (wanted < 10 * MT_MIB)
        return wanted;
    uint64_t segment = mt_mul(mt_ceil_div(wanted, 2 * MT_MIB), 2 * MT_MIB);
    int is_whole = segment - wanted <= MT_MIB || (whole_bytes && segment >= whole_bytes);
    return is_whole ? segment : wanted;
}

uint64_t mt_torch_token_bytes(const struct mt_model_layer *layer, const struct mt_torch_cell *cell,
                              uint64_t tensor_parallel)
{
    switch (layer->attention) {
    case MT_ATTENTION_NONE:
    case MT_ATTENTION_CROSS:
        return 0;
    case MT_ATTENTION_LATENT:
        if (cell->latent_bytes)
            return cell->latent_bytes;
        return mt_scale(mt_add(layer->key_size, layer->value_size), cell->bytes);
    case MT_ATTENTION_GLOBAL:
    case MT_ATTENTION_SLIDING:
    case MT_ATTENTION_CHUNKED:
        break;
    }
    uint64_t heads =
        layer->kv_heads > tensor_parallel ? mt_ceil_div(layer->kv_heads, tensor_parallel) : 1;
    uint64_t head = mt_scale(mt_add(layer->key_size, layer->value_size), cell->bytes);
    return mt_mul(heads, mt_add(head, (layer->value_size ? 2 : 1) * cell->bytes_of_head));
}

uint64_t mt_torch_state_element_bytes(const struct mt_predict_input *in)
{
    static const enum mt_lineage full[] = {MT_LINEAGE_QWEN35, MT_LINEAGE_KIMI, MT_LINEAGE_JAMBA,
                                           MT_LINEAGE_NEMOTRON_H};
    for (size_t i = 0; i < sizeof full / sizeof *full; i++)
        if (mt_is_of_lineage(in->d->architecture, full[i]))
            return 4;
    return mt_torch_float_width(in->settings);
}

/* Channels of the convolution: of delta nets and Mamba 2 also keys and queries (B and C) go through
 * it; Kimi has one for each of q, k and v. */
static uint64_t conv_channels(const struct mt_model_description *d,
                              const struct mt_model_layer *layer)
{
    uint64_t groups = mt_mul(mt_mul(2, d->group_count), d->state_size);
    switch (layer->recurrence) {
    case MT_RECURRENCE_DELTA_NET:
    case MT_RECURRENCE_MAMBA2:
        return mt_add(d->inner_size, groups);
    case MT_RECURRENCE_KIMI_DELTA:
        return mt_mul(3, d->inner_size);
    case MT_RECURRENCE_MAMBA:
        return d->inner_size;
    case MT_RECURRENCE_SHORT_CONVOLUTION:
    case MT_RECURRENCE_RWKV:
        return d->embedding_length;
    case MT_RECURRENCE_NONE:
        break;
    }
    return 0;
}

uint64_t mt_torch_state_bytes(const struct mt_model_description *d,
                              const struct mt_model_layer *layer, uint64_t tensor_parallel,
                              uint64_t conv_bytes, uint64_t state_bytes, uint64_t rows)
{
    uint64_t kernel = layer->recurrence == MT_RECURRENCE_SHORT_CONVOLUTION && d->short_conv_cache
                          ? d->short_conv_cache
                          : d->conv_kernel;
    uint64_t channels = mt_ceil_div(conv_channels(d, layer), tensor_parallel);
    uint64_t conv = mt_mul(mt_mul(mt_add(kernel ? kernel - 1 : 0, rows), channels), conv_bytes);
    if (layer->recurrence == MT_RECURRENCE_NONE ||
        layer->recurrence == MT_RECURRENCE_SHORT_CONVOLUTION)
        return layer->recurrence == MT_RECURRENCE_NONE ? 0 : conv;
    uint64_t state = mt_mul(mt_ceil_div(d->inner_size, tensor_parallel), d->state_size);
    return mt_add(conv, mt_mul(state, state_bytes));
}

/* Elements that a token needs inside the feed-forward: gate, up and their product; of experts the
 * rows of all that it is sent to, and those that come back. */
static uint64_t mlp_width(const struct mt_model_layer *layer, uint64_t embedding, uint64_t parallel)
{
    uint64_t dense = mt_mul(3, mt_ceil_div(layer->ff_length, parallel));
    if (!layer->experts)
        return dense;
    uint64_t inner = mt_ceil_div(layer->expert_ff_length, parallel);
    uint64_t first = mt_mul(2, inner) > embedding ? mt_mul(2, inner) : embedding;
    uint64_t routed = mt_mul(layer->experts_used, mt_add(first, inner));
    uint64_t shared = mt_mul(3, mt_ceil_div(layer->shared_ff_length, parallel));
    return mt_add(routed, shared) > dense ? mt_add(routed, shared) : dense;
}

void mt_torch_forward_of(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                         uint64_t tokens, struct mt_torch_forward *forward)
{
    uint64_t widest = 0;
    for (uint64_t i = stage->first; i < stage->end && i < in->d->n_layers; i++) {
        uint64_t width =
            mlp_width(&in->d->layers[i], in->d->embedding_length,
                      in->settings->tensor_parallel ? in->settings->tensor_parallel : 1);
        widest = width > widest ? width : widest;
    }
    uint64_t width = mt_torch_float_width(in->settings);
    forward->hidden_bytes = mt_mul(tokens, mt_mul(4 * width, in->d->embedding_length));
    forward->mlp_bytes = mt_mul(tokens, mt_mul(width, widest));
    forward->bytes = mt_add(forward->hidden_bytes, forward->mlp_bytes);
}
